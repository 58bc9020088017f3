"""One rule for serialising: a constructor argument is kept under its own name."""

import inspect


class ArgumentsConfig:
    """Mixin: `get_config` is made of the constructor's arguments, read from the attributes of the
    same names. Keras' automatic one covers neither models nor dtype policies given as objects."""

    def get_config(self):
        names = list(inspect.signature(type(self).__init__).parameters)[1:]
        own = {name: getattr(self, name) for name in names if name != "kwargs"}
        return {**super().get_config(), **own}
