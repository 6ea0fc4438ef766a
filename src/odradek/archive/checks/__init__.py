"""Is everything there, once, and how far behind is the archive?"""
