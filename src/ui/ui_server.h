#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "net/http_server.h"
#include "ui/detached_process.h"
#include "ui/live_runs.h"

namespace hearth::ui {

/// Server of the live page of a folder of runs. Listens from construction to destruction.
class UiServer {
 public:
  /// `program`: path of hearth, which continues runs; empty: the page cannot continue runs.
  UiServer(const fs::path& root, std::string program, net::HttpServerOptions options);
  ~UiServer();
  UiServer(const UiServer&) = delete;
  UiServer& operator=(const UiServer&) = delete;

  /// Returns the address of the page, without the token.
  std::string url() const { return server_.url(); }
  int port() const { return server_.port(); }

 private:
  /// A run that was continued from the page and whose process has not ended yet.
  struct Continued {
    std::string name;
    DetachedProcess process;
  };

  void add_routes();
  /// Returns the folder of the run that the query names. Throws HttpFault if there is no such run.
  fs::path folder_of(const net::Exchange& exchange) const;
  void continue_run(const net::Exchange& exchange);
  void send_updates(const net::Exchange& exchange);
  void send(std::string_view event, std::string_view json);
  void follow_runs();

  LiveRuns runs_;
  std::string root_name_, program_;
  net::HttpServer server_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<net::Exchange> followers_;      ///< open streams of updates
  std::vector<net::Exchange> new_followers_;  ///< streams that receive all runs at the next refresh
  std::vector<Continued> continued_;
  bool is_ending_ = false;
  std::thread thread_;  ///< refreshes the runs and writes to the followers
};

}  // namespace hearth::ui
