"""One rule for serialising: a constructor argument is kept under its own name."""

import inspect


class ArgumentsConfig:
    """Mixin: `get_config` is made of the constructors' named arguments, those of base classes
    included, read from the attributes of the same names. Keras' automatic one covers neither
    models nor dtype policies given as objects."""

    def get_config(self):
        constructors = [
            kind.__init__
            for kind in type(self).__mro__
            if issubclass(kind, ArgumentsConfig) and "__init__" in vars(kind)
        ]
        own = {
            name: getattr(self, name)
            for constructor in constructors
            for name, parameter in list(inspect.signature(constructor).parameters.items())[1:]
            if parameter.kind is not parameter.VAR_KEYWORD
        }
        return {**super().get_config(), **own}
