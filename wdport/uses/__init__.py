"""What one does with a converted model, and the families that wdport ships: the core never imports this package."""
