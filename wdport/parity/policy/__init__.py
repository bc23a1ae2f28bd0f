"""A project's own requirements on its parity runs: judge a verdict by a policy file and a baseline."""

from wdport.parity.policy.baseline import apply_baseline as apply_baseline
from wdport.parity.policy.baseline import compare_baseline as compare_baseline
from wdport.parity.policy.baseline import make_baseline as make_baseline
from wdport.parity.policy.baseline import read_baseline as read_baseline
from wdport.parity.policy.baseline import write_baseline as write_baseline
from wdport.parity.policy.judge import apply_policy as apply_policy
from wdport.parity.policy.policy import BoundSetting as BoundSetting
from wdport.parity.policy.policy import Policy as Policy
from wdport.parity.policy.policy import Waiver as Waiver
from wdport.parity.policy.policy import loosened as loosened
from wdport.parity.policy.policy import read_policy as read_policy
