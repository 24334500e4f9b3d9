"""Topics, subscriptions, services, requests and answers. Pure of sockets; time is passed in."""
