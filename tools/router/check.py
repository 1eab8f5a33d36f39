"""Checks two replicas of minfer behind vllm-router (pip install vllm-router==0.1.17).

    python check.py MINFER MODEL

MINFER is the binary, MODEL what `minfer serve` takes. Each conversation must come back to the replica
that has its prefix, and the other replica must answer once one is killed.
"""

import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def call(url, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as response:
        return json.load(response)


def until(what, holds, seconds=60):
    end = time.time() + seconds
    while time.time() < end:
        try:
            if holds():
                return
        except (OSError, urllib.error.URLError):
            pass
        time.sleep(0.2)
    raise SystemExit(f"{what}: not within {seconds} s")


def main():
    minfer, model = sys.argv[1:3]
    ports = [free_port(), free_port()]
    replicas = [f"http://127.0.0.1:{port}" for port in ports]
    router_port = free_port()
    router = f"http://127.0.0.1:{router_port}"
    processes = [
        subprocess.Popen([minfer, "serve", model, "--port", str(port)], stderr=subprocess.DEVNULL) for port in ports
    ]
    try:
        for replica in replicas:
            until(replica, lambda: call(replica + "/health")["status"] == "ok")
        command = [sys.executable, "-m", "vllm_router.launch_router", "--host", "127.0.0.1", "--port", str(router_port)]
        command += ["--policy", "cache_aware", "--health-check-interval-secs", "1", "--worker-urls", *replicas]
        processes.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        name = call(replicas[0] + "/v1/models")["data"][0]["id"]

        def ask(messages):
            body = {"model": name, "messages": messages, "temperature": 0, "max_tokens": 12}
            return call(router + "/v1/chat/completions", body)

        until("the router", lambda: ask([{"role": "user", "content": "hello"}])["choices"])
        for number in range(6):
            subject = f"Story {number}: " + " ".join(f"{word}{number}" for word in ["river", "stone", "cloud"] * 40)
            messages = [{"role": "user", "content": subject}]
            first = ask(messages)
            messages.append({"role": "assistant", "content": first["choices"][0]["message"]["content"]})
            messages.append({"role": "user", "content": "Go on."})
            usage = ask(messages)["usage"]
            cached = usage["prompt_tokens_details"]["cached_tokens"]
            assert cached >= first["usage"]["prompt_tokens"], f"conversation {number} came to the other replica: {usage}"
        processes[0].kill()
        until("the other replica", lambda: ask([{"role": "user", "content": "still there?"}])["choices"])
        answered = sum(bool(ask([{"role": "user", "content": f"question {number}"}])["choices"]) for number in range(10))
        assert answered == 10
        print("6 conversations came back to their replica; one replica answers for both")
    finally:
        for process in processes:
            process.kill()


main()
