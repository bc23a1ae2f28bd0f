"""What a porter needs before there is a mapping table: two running models to the table that joins them."""
