#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "net/http_server.h"

namespace hearth::serve {

/// A thread that answers requests one after the other, for models that compute one request at a time.
class TaskThread {
 public:
  TaskThread();
  /// Ends after the running request; those that wait are dropped.
  ~TaskThread();
  TaskThread(const TaskThread&) = delete;
  TaskThread& operator=(const TaskThread&) = delete;

  /// Adds a request to the queue; `handler` is called unless the client has left by then. Its exceptions
  /// become replies as in HttpServer. Throws HttpFault 429 if too many requests wait.
  void post(net::Exchange exchange, net::HttpHandler handler);

 private:
  struct Task {
    net::Exchange exchange;
    net::HttpHandler handler;
  };
  void work();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  bool is_ending_ = false;
  std::thread thread_;
};

}  // namespace hearth::serve
