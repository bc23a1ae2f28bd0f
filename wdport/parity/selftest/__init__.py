"""What this harness can find: known faults put into correct ports one at a time, and correct ports left alone."""

from wdport.families.faults import Kill as Kill
from wdport.parity.selftest.result import SelftestResult as SelftestResult
from wdport.parity.selftest.run import run_quick as run_quick
from wdport.parity.selftest.run import run_selftest as run_selftest
from wdport.parity.selftest.variant import Variant as Variant
