#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "net/http_server.h"

namespace hearth::serve {

/// A thread with a queue that answers one request after the other, for models that cannot compute several at
/// the same time.
class TaskThread {
 public:
  TaskThread();
  /// Waits for the running request and drops the requests in the queue.
  ~TaskThread();
  TaskThread(const TaskThread&) = delete;
  TaskThread& operator=(const TaskThread&) = delete;

  /// Adds a request to the queue. The thread calls `handler`, unless the client has left by then. Exceptions
  /// of the handler become replies as in HttpServer. Throws an HttpFault with status 429 if the queue is
  /// full.
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
