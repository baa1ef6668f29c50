"""One module or package per method, each ending in its `Method` entry; `registry` lists them."""
