"""Sampling: a model and a sampler's name in, coefficients and series out."""

from wdport.sampling.api import read_init as read_init
from wdport.sampling.api import sample as sample
from wdport.sampling.devices import spread_over as spread_over
from wdport.sampling.job import agreed as agreed
from wdport.sampling.job import announced as announced
from wdport.sampling.job import check_same as check_same
from wdport.sampling.job import fill_parts as fill_parts
from wdport.sampling.known import read_known as read_known
from wdport.sampling.known import resampling as resampling
from wdport.sampling.known import with_known as with_known
from wdport.sampling.network import stored_network as stored_network
from wdport.sampling.programs import Programs as Programs
from wdport.sampling.programs import programs_of as programs_of
from wdport.sampling.sampler import Sampler as Sampler
from wdport.sampling.sampler import Samples as Samples
from wdport.sampling.sampler import plan_of as plan_of
