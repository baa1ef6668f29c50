"""Many fits compared on the same rows: grids, contenders, frontiers, paired tests, and a page that shows them."""
