"""Read time series and compute z-scored windows and their transform coefficients, without jax, keras and torch.

From the file to the coefficients::

    text, arff (over rows) | arrays | matlab -> table -> series -> statistics -> windows -> pipeline -> store

Axes: T time steps of a file, F features, N window length, n windows, C coefficients.
"""

from wdport.uses.data.pipeline import Dataset as Dataset
from wdport.uses.data.pipeline import Transform as Transform
from wdport.uses.data.pipeline import transform_dataset as transform_dataset
from wdport.uses.data.series import Series as Series
from wdport.uses.data.series import read_series as read_series
from wdport.uses.data.series import sliding_windows as sliding_windows
from wdport.uses.data.statistics import Statistics as Statistics
from wdport.uses.data.statistics import read_statistics as read_statistics
