"""The client of GitHub's REST API as a GitHub App: tokens, runners, workflow runs, hook deliveries, webhook signatures.

`app.GitHubApp` is the entry point; `client.GitHubClient` sends every request, over HTTP or into an application of this process.
"""
