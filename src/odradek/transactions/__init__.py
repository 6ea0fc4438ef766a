"""The transaction coordinator: which transactional ids there are, who may write under them, and how transactions end."""
