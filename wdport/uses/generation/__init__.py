"""Generation: fill the masked tokens of texts, and continue texts."""

from wdport.uses.generation.api import Generated as Generated
from wdport.uses.generation.api import generate as generate
