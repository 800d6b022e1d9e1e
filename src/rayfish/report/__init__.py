"""What people look at afterwards: pages with charts."""
