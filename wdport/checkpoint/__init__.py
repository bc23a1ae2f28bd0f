"""Read untrusted checkpoint files as ``{name: array}`` without executing anything in them.

It needs only numpy and the standard library. From the file to the array::

    model_folder -> source -> sniff -> torch_file (zip_archive, pickle_machine) -> state_dict, modules -> reading
                                    -> safetensors
"""

from wdport.checkpoint.checkpoint import Checkpoint as Checkpoint
from wdport.checkpoint.checkpoint import open_checkpoint as open_checkpoint
from wdport.checkpoint.dtypes import HALF_ROUNDING as HALF_ROUNDING
from wdport.checkpoint.tensor import StorageRef as StorageRef
from wdport.checkpoint.tensor import TensorInfo as TensorInfo
from wdport.checkpoint.tensor import TensorRef as TensorRef
