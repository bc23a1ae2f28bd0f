"""Sampling: draw states from a diffusion model and decode them."""

from wdport.sampling.api import one_condition as one_condition
from wdport.sampling.api import read_init as read_init
from wdport.sampling.api import sample as sample
from wdport.sampling.condition import read_known as read_known
from wdport.sampling.devices import spread_over as spread_over
from wdport.sampling.job import Job as Job
from wdport.sampling.job import plan_job as plan_job
from wdport.sampling.network import stored_network as stored_network
from wdport.sampling.request import Request as Request
from wdport.sampling.sampler import Programs as Programs
from wdport.sampling.sampler import Sampler as Sampler
from wdport.sampling.sampler import Samples as Samples
from wdport.sampling.sampler import plan_of as plan_of
from wdport.sampling.sampler import programs_of as programs_of
