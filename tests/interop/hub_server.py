"""A server that behaves as the Hugging Face hub does, with repositories in memory and faults on request, for tests.

Large files (those of LFS) are redirected to a second port, as the hub redirects to its store.
"""

import base64
import collections
import hashlib
import http.server
import json
import re
import threading
import urllib.parse

LARGE = 1000  # Bytes from which a file is stored in LFS.
TOKEN = "hf_secret"


def git_hash(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def is_large(data):
    return len(data) >= LARGE


def etag_of(data):
    return hashlib.sha256(data).hexdigest() if is_large(data) else git_hash(data)


class Repo:
    def __init__(self, files, gated=False, private=False):
        self.files, self.gated, self.private = dict(files), gated, private
        self.branches = {}
        self.commits = {}
        self.commit()

    def commit(self, branch="main"):
        listing = json.dumps([(name, etag_of(data)) for name, data in sorted(self.files.items())])
        number = hashlib.sha1(listing.encode()).hexdigest()
        self.commits[number] = dict(self.files)
        self.branches[branch] = number
        return number

    def find(self, revision):
        return self.branches.get(revision, revision if revision in self.commits else None)


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        """Ignores clients that leave, as those that are killed."""


class Hub:
    """State of both servers. `faults`: list of functions (handler, path, data) -> bool that may answer a request themselves."""

    def __init__(self):
        self.repos = {}
        self.faults = []
        self.log = []
        self.objects = {}  # Uploaded LFS objects, by SHA-256.
        self.parts = collections.defaultdict(dict)
        self.part_bytes = None  # Size of parts of uploads; None: one request.
        self.lock = threading.Lock()
        self.servers = []
        for handler in (Endpoint, Store):
            server = Server(("127.0.0.1", 0), type(handler.__name__, (handler,), {"hub": self}))
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
            self.servers.append(server)
        self.url, self.store = ("http://127.0.0.1:%d" % server.server_port for server in self.servers)

    def close(self):
        for server in self.servers:
            server.shutdown()
            server.server_close()

    def requests(self, pattern):
        return [entry for entry in self.log if re.search(pattern, entry["line"])]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub = None

    def log_message(self, *_):
        pass

    def record(self):
        entry = {"line": f"{self.command} {self.path}", "headers": dict(self.headers), "server": type(self).__name__}
        with self.hub.lock:
            self.hub.log.append(entry)

    def reply(self, status, body=b"", **headers):
        self.send_response(status)
        length = headers.pop("Content_Length", len(body))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def reply_json(self, value, status=200, **headers):
        self.reply(status, json.dumps(value).encode(), Content_Type="application/json", **headers)

    def refuse(self, status, code, message):
        self.reply_json({"error": message}, status, X_Error_Code=code, X_Error_Message=message)

    def body(self):
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def reply_contents(self, data, **headers):
        """Answers with the file or the range that is requested, unless a fault answers instead."""
        start, status = 0, 200
        found = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        if found:
            start, status = int(found[1]), 206
            if start >= len(data):
                return self.reply(416, Content_Range=f"bytes */{len(data)}")
            headers["Content_Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
        for fault in list(self.hub.faults):
            if fault(self, self.path, data[start:]):
                return None
        return self.reply(status, data[start:], Accept_Ranges="bytes", **headers)

    def cut_after(self, data, count):
        """Sends `count` bytes of a file or of its requested range, then closes the connection."""
        requested = self.headers.get("Range")
        self.send_response(206 if requested else 200)
        if requested:
            start = int(requested[len("bytes=") : -1])
            self.send_header("Content-Range", f"bytes {start}-{start + len(data) - 1}/{start + len(data)}")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data[:count])
        self.wfile.flush()
        self.close_connection = True
        self.connection.shutdown(2)


class Store(Handler):
    """The other host, which stores large files: it must never receive a token."""

    def do_GET(self):
        self.record()
        if "Authorization" in self.headers:
            return self.reply(400, b"Authorization is not allowed here")
        return self.reply_contents(self.hub.objects[self.path.split("?")[0][1:]])

    def do_PUT(self):
        self.record()
        data = self.body()
        if "Authorization" in self.headers:
            return self.reply(400, b"Authorization is not allowed here")
        for fault in list(self.hub.faults):
            if fault(self, self.path, data):
                return None
        name, _, part = self.path[1:].partition("/")
        if part:
            self.hub.parts[name][int(part)] = data
        else:
            self.hub.objects[name] = data
        return self.reply(200, ETag=f'"part-{part}"')


class Endpoint(Handler):
    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        self.record()
        path = urllib.parse.unquote(self.path.split("?")[0])
        encoded = self.path.split("?")[0]
        for pattern, answer in (
            (r"/api/(models|datasets)/([^/]+/[^/]+)/revision/(.+)", self.answer_revision),
            (r"/api/(models|datasets)/([^/]+/[^/]+)/tree/([^/]+)(/.*)?", self.answer_tree),
            (r"/(datasets/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)", self.answer_file),
        ):
            found = re.fullmatch(pattern, encoded)
            if found:
                parts = [urllib.parse.unquote(part) if part else "" for part in found.groups()]
                if any(fault(self, path, b"") for fault in list(self.hub.faults)):
                    return None
                return answer(*parts)
        return self.refuse(404, "", "not found")

    def open(self, kind, name, revision, contents=False):
        """Returns the repository and commit, or None after an answer that refuses the request."""
        repo = self.hub.repos.get((kind.rstrip("/") or "models", name))
        given = self.headers.get("Authorization")
        if given not in (None, f"Bearer {TOKEN}", "Bearer hf_other"):
            return self.refuse(401, "", "Invalid credentials in Authorization header")
        if repo is None or (repo.private and given != f"Bearer {TOKEN}"):
            return self.refuse(401 if given is None else 404, "RepoNotFound", "Repository not found")
        if repo.gated and contents and given != f"Bearer {TOKEN}":
            return self.refuse(401 if given is None else 403, "GatedRepo", "Access to this model is restricted")
        commit = repo.find(revision)
        if commit is None:
            return self.refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return repo, commit

    def answer_revision(self, kind, name, revision):
        opened = self.open(kind, name, revision)
        if opened:
            repo, commit = opened
            siblings = [{"rfilename": path} for path in repo.commits[commit]]
            self.reply_json({"_id": "0", "id": name, "sha": commit, "siblings": siblings, "gated": repo.gated, "private": repo.private})

    def answer_tree(self, kind, name, revision, _):
        opened = self.open(kind, name, revision)
        if not opened:
            return
        entries = []
        files = opened[0].commits[opened[1]]
        for folder in sorted({path.rsplit("/", 1)[0] for path in files if "/" in path}):
            entries.append({"type": "directory", "oid": "0" * 40, "size": 0, "path": folder})
        for path, data in sorted(files.items()):
            entry = {"type": "file", "oid": git_hash(data), "size": len(data), "path": path}
            if is_large(data):
                entry["lfs"] = {"oid": etag_of(data), "size": len(data), "pointerSize": 130}
            entries.append(entry)
        query = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)
        page, size = int(query.get("cursor", ["0"])[0]), 5
        headers = {}
        if (page + 1) * size < len(entries):
            url = f"{self.hub.url}{self.path.split('?')[0]}?recursive=true&expand=false&cursor={page + 1}"
            headers["Link"] = f'<{url}>; rel="next"'
        self.reply_json(entries[page * size : (page + 1) * size], **headers)

    def answer_file(self, kind, name, revision, path):
        opened = self.open(kind or "models", name, revision, contents=True)
        if not opened:
            return
        repo, commit = opened
        data = repo.commits[commit].get(path)
        if data is None:
            self.reply_json({}, 404, X_Error_Code="EntryNotFound", X_Error_Message="Entry not found", X_Repo_Commit=commit)
        elif is_large(data):
            number = etag_of(data)
            self.hub.objects[number] = data
            self.reply(
                302,
                Location=f"{self.hub.store}/{number}?signature=1",
                X_Repo_Commit=commit,
                X_Linked_Etag=f'"{number}"',
                X_Linked_Size=str(len(data)),
            )
        elif self.command == "HEAD":
            self.reply(200, ETag=f'"{etag_of(data)}"', X_Repo_Commit=commit, Content_Length=len(data))
        else:
            self.reply_contents(data, ETag=f'"{etag_of(data)}"', X_Repo_Commit=commit)

    def do_POST(self):
        self.record()
        data = self.body()
        if self.headers.get("Authorization") != f"Bearer {TOKEN}" and "/complete/" not in self.path:
            return self.refuse(401, "", "Invalid credentials in Authorization header")
        if any(fault(self, self.path, data) for fault in list(self.hub.faults)):
            return None
        path = urllib.parse.unquote(self.path.split("?")[0])
        if path == "/api/validate-yaml":
            return self.reply_json({"errors": [], "warnings": []})
        if path == "/api/repos/create":
            return self.create(json.loads(data))
        for pattern, answer in (
            (r"/api/(models|datasets)/([^/]+/[^/]+)/preupload/(.+)", self.preupload),
            (r"/(datasets/)?([^/]+/[^/]+)\.git/info/lfs/objects/batch", self.batch),
            (r"/verify/(.*)", self.verify),
            (r"/complete/(.+)", self.complete),
            (r"/api/(models|datasets)/([^/]+/[^/]+)/commit/(.+)", self.commit),
        ):
            found = re.fullmatch(pattern, path)
            if found:
                return answer(data, *[part or "" for part in found.groups()])
        return self.refuse(404, "", "not found")

    def create(self, request):
        organization = request.get("organization") or "me"
        key = (request.get("type", "model") + "s", f"{organization}/{request['name']}")
        url = f"{self.hub.url}/{key[1]}"
        if key in self.hub.repos:
            return self.reply_json({"error": "You already created this model repo", "url": url}, 409)
        self.hub.repos[key] = Repo({".gitattributes": b"*.safetensors filter=lfs"})
        self.hub.repos[key].private = request.get("visibility") == "private" or request.get("private", False)
        return self.reply_json({"url": url, "name": key[1]})

    def preupload(self, data, kind, name, revision):
        files = []
        for file in json.loads(data)["files"]:
            base64.b64decode(file["sample"], validate=True)
            mode = "lfs" if file["size"] >= LARGE and not file["path"].endswith((".json", ".md")) else "regular"
            files.append({"path": file["path"], "uploadMode": mode, "shouldIgnore": False, "oid": None})
        self.reply_json({"files": files})

    def batch(self, data, kind, name):
        assert self.headers["Accept"] == self.headers["Content-Type"] == "application/vnd.git-lfs+json"
        request = json.loads(data)
        assert request["operation"] == "upload" and request["hash_algo"] == "sha256"
        objects = []
        for entry in request["objects"]:
            objects.append({"oid": entry["oid"], "size": entry["size"]})
            if entry["oid"] in self.hub.objects:
                continue
            verify = {"href": f"{self.hub.url}/verify/{name}"}
            upload = {"href": f"{self.hub.store}/{entry['oid']}"}
            size = self.hub.part_bytes
            if size and entry["size"] > size:
                count = -(-entry["size"] // size)
                header = {str(i + 1): f"{self.hub.store}/{entry['oid']}/{i + 1}" for i in range(count)}
                upload = {"href": f"{self.hub.url}/complete/{entry['oid']}", "header": {"chunk_size": str(size), **header}}
            objects[-1]["actions"] = {"upload": upload, "verify": verify}
        self.reply_json({"transfer": "multipart" if self.hub.part_bytes else "basic", "objects": objects})

    def complete(self, data, number):
        request = json.loads(data)
        parts = self.hub.parts[number]
        assert request["oid"] == number
        assert [part["partNumber"] for part in request["parts"]] == sorted(parts)
        assert all(part["etag"] == f'"part-{part["partNumber"]}"' for part in request["parts"])
        self.hub.objects[number] = b"".join(parts[i] for i in sorted(parts))
        self.reply_json({"success": True})

    def verify(self, data, _):
        request = json.loads(data)
        stored = self.hub.objects.get(request["oid"], b"")
        is_equal = len(stored) == request["size"] and hashlib.sha256(stored).hexdigest() == request["oid"]
        self.reply_json({}, 200 if is_equal else 400)

    def commit(self, data, kind, name, revision):
        lines = [json.loads(line) for line in data.decode().splitlines() if line]
        assert self.headers["Content-Type"] == "application/x-ndjson"
        assert lines[0]["key"] == "header" and lines[0]["value"]["summary"]
        repo = self.hub.repos[(kind, name)]
        for line in lines[1:]:
            value = line["value"]
            if line["key"] == "file":
                assert value["encoding"] == "base64"
                repo.files[value["path"]] = base64.b64decode(value["content"], validate=True)
            else:
                assert line["key"] == "lfsFile" and value["algo"] == "sha256"
                repo.files[value["path"]] = self.hub.objects[value["oid"]]
                assert len(repo.files[value["path"]]) == value["size"]
        number = repo.commit(revision)
        self.reply_json({"success": True, "commitOid": number, "commitUrl": f"{self.hub.url}/{name}/commit/{number}"})
