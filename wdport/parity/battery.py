"""The inputs that a parity run uses: they decide what can be seen.

Three seeds; the first, a middle and the last time step within one batch; unit and fifty-fold scale;
batches of one and of four; energy different in every level; weights as converted and with random
biases. Inputs of zeros or ones, or a time of 0, would each hide known faults.
"""

from wdport.recorder import CASES as CASES
from wdport.recorder import Case as Case
