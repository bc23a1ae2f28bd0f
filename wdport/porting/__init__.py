"""What is known of a PyTorch model before there is a mapping table: its graph, outline and Keras source, and the search
for a table."""
