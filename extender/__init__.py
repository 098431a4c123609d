"""Gang Extender: gang scheduling, fair queues and verdicts for the stock kube-scheduler."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("gang-extender")
except PackageNotFoundError:  # a checkout that was never installed
    __version__ = "0.0.0+checkout"
