"""Read time series and compute z-scored windows and their transform coefficients, without jax, keras and torch.

From the file to the coefficients::

    text, arff (over rows) | arrays | matlab -> table -> series -> statistics -> windows -> pipeline -> store

Axes: T time steps of a file, F features, N window length, n windows, C coefficients.
"""

from wdport.data.pipeline import Dataset as Dataset
from wdport.data.pipeline import Transform as Transform
from wdport.data.pipeline import transform_dataset as transform_dataset
from wdport.data.series import Series as Series
from wdport.data.series import read_series as read_series
from wdport.data.series import sliding_windows as sliding_windows
from wdport.data.statistics import Statistics as Statistics
from wdport.data.statistics import read_statistics as read_statistics
