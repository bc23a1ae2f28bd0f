"""Generation: fill the masked tokens of texts, and continue texts."""

from wdport.generation.api import Generated as Generated
from wdport.generation.api import generate as generate
