"""What a training runs on: one device, the GPUs of a machine, or several machines."""

import json
import os
from collections.abc import Callable, Mapping
from typing import Literal

import tensorflow as tf

from kformer.errors import InputError
from training.data.batches import WHOLE, Shares

WORKERS = "KFORMER_WORKERS"
"""Environment variable: HOST:PORT of all workers, with commas between, where nothing else says."""


class Devices:
    """The devices of a training, and what they have to agree on.

    Args:
        kind: see `train.strategy`.
        environ: where the workers of `multi_worker` are found.

    Raises:
        InputError: the environment names no workers.
    """

    def __init__(
        self,
        kind: Literal["none", "mirrored", "multi_worker"],
        environ: Mapping[str, str] = os.environ,
    ):
        self.index = 0
        if kind == "none":
            self.strategy = tf.distribute.get_strategy()
        elif kind == "mirrored":
            self.strategy = tf.distribute.MirroredStrategy(_local_devices())
        else:
            workers, self.index = find_workers(environ)
            os.environ["TF_CONFIG"] = json.dumps(
                {"cluster": {"worker": workers}, "task": {"type": "worker", "index": self.index}}
            )
            self.strategy = tf.distribute.MultiWorkerMirroredStrategy()
        self.several_workers = kind == "multi_worker"

    @property
    def is_chief(self) -> bool:
        """Whether this process is the one that writes and prints."""
        return self.index == 0

    @property
    def replicas(self) -> int:
        """Over how many devices each batch is shared out."""
        return self.strategy.num_replicas_in_sync

    def distribute(self, make: Callable[[Shares], tf.data.Dataset]):
        """Batches of which each device is given its share.

        Args:
            make: gives the dataset of these shares: of each batch its own, one after another.
        """
        if self.replicas == 1:
            return make(WHOLE)

        def pipeline(context):
            own = self.replicas // context.num_input_pipelines
            first = own * context.input_pipeline_id
            return make(Shares(self.replicas, tuple(range(first, first + own))))

        return self.strategy.distribute_datasets_from_function(pipeline)

    def any_of(self, *flags: bool) -> list[bool]:
        """For each flag whether any worker has it set; all workers must ask at the same time."""
        if not self.several_workers:
            return list(flags)
        counts = self._summed(tf.constant(flags, tf.float32))
        return (self.strategy.experimental_local_results(counts)[0].numpy() > 0).tolist()

    @tf.function
    def _summed(self, flags):
        def summed(own):
            # Made here, it lies on a device of this worker; what comes from outside lies on none.
            return tf.distribute.get_replica_context().all_reduce("SUM", tf.identity(own))

        return self.strategy.run(summed, (flags,))

    def __str__(self) -> str:
        gpus = tf.config.list_physical_devices("GPU")
        names = [tf.config.experimental.get_device_details(gpu).get("device_name") for gpu in gpus]
        here = f"GPU, {', '.join(map(str, names))}" if gpus else f"CPU, {os.cpu_count()} cores"
        return here if self.replicas == 1 else f"{here}; {self.replicas} replicas"


def find_workers(environ: Mapping[str, str]) -> tuple[list[str], int]:
    """HOST:PORT of all workers, and which of them this process is.

    From TF_CONFIG; or from KFORMER_WORKERS with the index that a Kubernetes job (Indexed) or Slurm
    gives; or from Slurm alone.

    Raises:
        InputError: none of these is set, or what they say is no cluster.
    """
    if "TF_CONFIG" in environ:
        try:
            content = json.loads(environ["TF_CONFIG"])
            workers, index = content["cluster"]["worker"], int(content["task"]["index"])
            workers[index]
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise InputError(
                "TF_CONFIG must hold cluster.worker, a list of HOST:PORT, and task.index in it. "
                f"Received: {environ['TF_CONFIG']!r}"
            ) from error
        return workers, index
    if WORKERS in environ:
        workers = [worker.strip() for worker in environ[WORKERS].split(",")]
        index = environ.get("JOB_COMPLETION_INDEX", environ.get("SLURM_PROCID", ""))
        if not index.isdecimal() or int(index) >= len(workers):
            raise InputError(
                f"{WORKERS} names {len(workers)} workers, but JOB_COMPLETION_INDEX or "
                f"SLURM_PROCID does not say which this is. Received: {index!r}"
            )
        return workers, int(index)
    if "SLURM_PROCID" in environ:
        # It reckons with a GPU for each task; which GPUs a task sees, Slurm says.
        resolver = tf.distribute.cluster_resolver.SlurmClusterResolver(
            gpus_per_node=int(environ["SLURM_NTASKS"]), gpus_per_task=1, auto_set_gpu=False
        )
        workers = resolver.cluster_spec().as_dict()["worker"]
        return workers, int(environ["SLURM_PROCID"])
    raise InputError(
        f"train.strategy multi_worker needs to know its workers: set TF_CONFIG, or {WORKERS} to "
        "HOST:PORT,HOST:PORT,... and JOB_COMPLETION_INDEX to the number of this one, or start it "
        "with Slurm's srun"
    )


def _local_devices() -> list[str]:
    """All GPUs, or, without one, the logical CPUs: one unless a test asks for more."""
    gpus = tf.config.list_logical_devices("GPU")
    return [device.name for device in gpus or tf.config.list_logical_devices("CPU")]
