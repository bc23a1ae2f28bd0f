"""Files that wdport writes, each whole or not at all; and the converted models that it reads again."""
