"""Looking into a running PyTorch model, as :mod:`wdport.recorder` does it in the environment of its users."""

from wdport.recorder import highest_precision as highest_precision
from wdport.recorder import isolate as isolate
from wdport.recorder import module_names as module_names
from wdport.recorder import record as record
from wdport.recorder import run as run
