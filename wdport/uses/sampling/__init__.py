"""Sampling: draw states from a diffusion model and decode them."""

from wdport.uses.sampling.api import one_condition as one_condition
from wdport.uses.sampling.api import read_init as read_init
from wdport.uses.sampling.api import sample as sample
from wdport.uses.sampling.condition import read_known as read_known
from wdport.uses.sampling.devices import spread_over as spread_over
from wdport.uses.sampling.job import Job as Job
from wdport.uses.sampling.job import plan_job as plan_job
from wdport.uses.sampling.network import stored_network as stored_network
from wdport.uses.sampling.request import Request as Request
from wdport.uses.sampling.sampler import Programs as Programs
from wdport.uses.sampling.sampler import Sampler as Sampler
from wdport.uses.sampling.sampler import Samples as Samples
from wdport.uses.sampling.sampler import plan_of as plan_of
from wdport.uses.sampling.sampler import programs_of as programs_of
