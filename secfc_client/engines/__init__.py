"""Where a site's shares are held and computed with, if not in memory."""
