#include "loggers/webhook.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "loggers/rest.h"

namespace hearth::loggers {
namespace {

using Json = nlohmann::json;

class Webhook : public Logger {
 public:
  explicit Webhook(const std::string& url) : client_(*this, url) {}

  std::string open(const RunInfo& run) override {
    run_ = run;
    if (!is_started_) post("start", run.id.empty() ? "training started" : "training resumed");
    is_started_ = true;
    return "started";
  }
  void send(const Batch& batch) override {
    const Row* best = nullptr;
    for (const Row& row : batch.rows) {
      last_step_ = row.step;
      if (row.is_best) best = &row;
    }
    if (best == nullptr) return;
    Json metrics = Json::object();
    std::string text = fmt::format("best evaluation so far, at step {}:", best->step);
    for (const auto& [name, value] : best->metrics) {
      metrics[name] = value;
      text += fmt::format("{} {} {:.5g}", text.ends_with(':') ? "" : ",", name, value);
    }
    post("best", text, {{"metrics", metrics}});
  }
  bool wants_failures() const override { return true; }
  void send_failure(const std::string& text) override { post("crash", text, {{"is_final", false}}); }
  void finish(const RunEnd& end) override {
    if (end.state == EndState::crashed) return post("crash", end.text, {{"is_final", true}});
    const bool is_done = end.state == EndState::done;
    post("end", fmt::format("{} at step {}", is_done ? "done" : "interrupted", last_step_),
         {{"is_complete", is_done}});
  }

 private:
  void post(const char* event, const std::string& text, const Json& more = Json::object()) {
    char host[256] = "";
    gethostname(host, sizeof(host) - 1);
    const std::string line = fmt::format("{} on {}: {}", run_.name, host, text);
    // Slack and Mattermost show "text", Discord shows "content".
    Json body = {{"event", event},
                 {"text", line},
                 {"content", line},
                 {"run", run_.name},
                 {"folder", run_.folder.string()},
                 {"host", host},
                 {"step", last_step_}};
    body.update(more);
    client_.check(client_.send("POST", "", body));
  }

  RestClient client_;
  RunInfo run_;
  int64_t last_step_ = 0;
  bool is_started_ = false;
};

}  // namespace

std::string webhook_url(const std::string& value) {
  constexpr std::string_view kVariable = "env:";
  if (!value.starts_with(kVariable)) return value;
  const std::string name = value.substr(kVariable.size());
  const char* const url = std::getenv(name.c_str());
  if (url == nullptr || net::url_origin(url).empty())
    user_error("log.webhook={}: the environment variable {} is not set to a URL; set it to https://HOST/PATH",
               value, name);
  return url;
}

std::unique_ptr<Logger> open_webhook(const std::string& url) { return std::make_unique<Webhook>(url); }

}  // namespace hearth::loggers
