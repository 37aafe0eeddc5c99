#include "ui/ui_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "base/run_files.h"
#include "io/page_style.h"
#include "io/run_outputs.h"
#include "io/run_request.h"
#include "ui/page_files.h"
#include "ui/recipe_keys.h"
#include "ui/samples.h"

namespace hearth::ui {
namespace {

using namespace std::chrono_literals;
using Json = nlohmann::ordered_json;
using net::Exchange;
using net::HttpFault;

constexpr auto kRefresh = 1s;
constexpr int kRefreshesPerFullRefresh = 4;
/// Exit status of a run that was stopped.
constexpr int kInterrupted = 130;
constexpr size_t kMaxPoints = 2000, kDefaultPoints = 400;
constexpr int64_t kMaxReportBytes = 256 << 20, kMaxPlanBytes = 1 << 20;

/// Content-Security-Policy of the page, which may show reports of this server in a frame.
constexpr const char* kPagePolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
/// Content-Security-Policy of reports. Anyone may have written these files, so scripts, forms, links and
/// requests are disabled.
constexpr const char* kReportPolicy =
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox; frame-ancestors 'self'";

std::string text_of(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

std::string query(const Exchange& exchange, std::string_view name) {
  const std::string* value = exchange->request().query_value(name);
  if (value == nullptr)
    throw HttpFault{400, fmt::format("the URL has no parameter '{0}'; append {0}=VALUE", name)};
  return *value;
}

int64_t number(const Exchange& exchange, std::string_view name, int64_t if_missing) {
  const std::string* text = exchange->request().query_value(name);
  if (text == nullptr) return if_missing;
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc() || end != text->data() + text->size() || value < 0)
    throw HttpFault{400,
                    fmt::format("the parameter {} is '{}'; set it to an integer of at least 0", name, *text)};
  return value;
}

bool is_regular(const fs::path& file) {
  std::error_code error;
  return fs::is_regular_file(fs::symlink_status(file, error));
}

/// Returns the contents of plan.json of a run; null if the file is missing or contains no object.
Json read_plan(const fs::path& run) {
  const fs::path file = run / io::kPlanFile;
  if (!is_regular(file)) return nullptr;
  const std::optional<Json> plan = parse_json<Json>(read_file(file, kMaxPlanBytes));
  return plan && plan->is_object() ? *plan : Json(nullptr);
}

/// Returns parts of a run that rarely change as JSON: recipe, steps of generated images by name, plan.
std::string details_of(const fs::path& run) {
  Json samples = Json::object();
  for (const SampleImage& image : list_samples(run)) samples[image.name].push_back(image.step);
  Json recipe = Json::array();
  for (const auto& [key, value] : read_recipe_keys(run / kRunRecipe)) recipe.push_back({key, value});
  return text_of({{"recipe", recipe}, {"samples", samples}, {"plan", read_plan(run)}});
}

}  // namespace

UiServer::UiServer(const fs::path& root, std::string program, net::HttpServerOptions options)
    : runs_(root),
      root_name_(fs::absolute(root).lexically_normal().string()),
      program_(std::move(program)),
      server_(std::move(options)) {
  add_routes();
  server_.start();
  thread_ = std::thread([this] { follow_runs(); });
}

UiServer::~UiServer() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
    followers_.insert(followers_.end(), new_followers_.begin(), new_followers_.end());
    new_followers_.clear();
    for (const Exchange& follower : followers_) follower->end_stream();
    followers_.clear();
  }
  changed_.notify_all();
  thread_.join();
  server_.stop(500ms);
}

fs::path UiServer::folder_of(const Exchange& exchange) const {
  const std::string name = query(exchange, "run");
  const std::optional<fs::path> folder = runs_.folder_of(name);
  if (!folder)
    throw HttpFault{404, fmt::format("there is no run '{}'; reload the page to update the list", name)};
  return *folder;
}

void UiServer::add_routes() {
  server_.add_files(page_files());
  const auto page = std::ranges::find(page_files(), "/index.html", &net::StaticFile::path);
  server_.on("GET", "/", [page](const Exchange& exchange) {
    exchange->reply({.type = "text/html; charset=utf-8",
                     .body = std::string(page->text),
                     .headers = {{"Content-Security-Policy", kPagePolicy}}});
  });
  server_.on("GET", "/shared.css", [](const Exchange& exchange) {
    exchange->reply({.type = "text/css; charset=utf-8", .body = std::string(io::page_style())});
  });
  server_.on("GET", "/api/updates", [this](const Exchange& exchange) { send_updates(exchange); });
  server_.on("GET", "/api/curves", [this](const Exchange& exchange) {
    const StepRange range{number(exchange, "first", 0), number(exchange, "last", INT64_MAX)};
    const auto points = static_cast<size_t>(number(exchange, "points", kDefaultPoints));
    folder_of(exchange);
    exchange->reply(
        {.body = runs_.curves(query(exchange, "run"), range, std::clamp<size_t>(points, 2, kMaxPoints))
                     .value_or("{}")});
  });
  server_.on("GET", "/api/run", [this](const Exchange& exchange) {
    exchange->reply({.body = details_of(folder_of(exchange))});
  });
  server_.on("GET", "/api/sample", [this](const Exchange& exchange) {
    auto png = read_sample(folder_of(exchange), number(exchange, "step", 0), query(exchange, "name"));
    if (!png) throw HttpFault{404, "there is no such image; reload the page"};
    exchange->reply(
        {.type = "image/png", .body = std::move(*png), .headers = {{"Cache-Control", "max-age=3600"}}});
  });
  server_.on("GET", "/api/report", [this](const Exchange& exchange) {
    const fs::path report = folder_of(exchange) / io::kReportFile;
    if (!is_regular(report)) throw HttpFault{404, "this run has no report; a run writes it when it ends"};
    exchange->reply({.type = "text/html; charset=utf-8",
                     .body = read_file(report, kMaxReportBytes),
                     .headers = {{"Content-Security-Policy", kReportPolicy}}});
  });
  const auto handle = [this](io::RunRequest request) {
    return [this, request](const Exchange& exchange) {
      const fs::path folder = folder_of(exchange);
      if (runs_.state_of(query(exchange, "run")) != RunState::running)
        throw HttpFault{409, "this run is not running; reload the page to update its state"};
      io::send_request(folder, request);
      exchange->reply({.body = "{}"});
    };
  };
  server_.on("POST", "/api/stop", handle(io::RunRequest::stop));
  server_.on("POST", "/api/checkpoint", handle(io::RunRequest::checkpoint));
  server_.on("POST", "/api/continue", [this](const Exchange& exchange) { continue_run(exchange); });
}

void UiServer::continue_run(const Exchange& exchange) {
  const fs::path folder = fs::absolute(folder_of(exchange));
  const std::string name = query(exchange, "run");
  const std::lock_guard lock(mutex_);
  const bool is_starting = std::ranges::find(continued_, name, &Continued::name) != continued_.end();
  const std::optional<RunState> state = runs_.state_of(name);
  if (program_.empty() || is_starting || (state != RunState::stopped && state != RunState::crashed))
    throw HttpFault{409, "only a stopped or crashed run can be continued; wait until its state has changed"};
  continued_.push_back({name, DetachedProcess(program_, {"resume", folder.string()}, folder / "resume.log")});
  exchange->reply({.body = "{}"});
}

void UiServer::send_updates(const Exchange& exchange) {
  exchange->begin_stream();
  const std::lock_guard lock(mutex_);
  if (is_ending_) return exchange->end_stream();
  exchange->write(fmt::format("event: server\ndata: {}\n\n",
                              text_of({{"root", root_name_}, {"can_continue", !program_.empty()}})));
  new_followers_.push_back(exchange);
  changed_.notify_all();
}

/// Sends an event to all open pages and removes closed pages from followers_. The caller has locked mutex_.
void UiServer::send(std::string_view event, std::string_view json) {
  const std::string text = fmt::format("event: {}\ndata: {}\n\n", event, json);
  std::erase_if(followers_, [&](const Exchange& follower) { return !follower->write(text); });
}

void UiServer::follow_runs() {
  std::unique_lock lock(mutex_);
  for (int i = 0; !is_ending_; ++i) {
    lock.unlock();
    const bool is_full = i % kRefreshesPerFullRefresh == 0;
    const std::string changes = runs_.refresh(is_full ? LiveRuns::Scope::all : LiveRuns::Scope::running);
    lock.lock();
    if (!changes.empty()) send("runs", changes);
    for (const Exchange& follower : new_followers_)
      follower->write(fmt::format("event: runs\ndata: {}\n\n", runs_.all()));
    followers_.insert(followers_.end(), new_followers_.begin(), new_followers_.end());
    new_followers_.clear();
    std::erase_if(followers_, [](const Exchange& follower) { return !follower->is_open(); });
    std::erase_if(continued_, [&](const Continued& run) {
      const std::optional<int> status = run.process.status();
      if (status && *status != 0 && *status != kInterrupted)
        send("message", text_of({{"text", fmt::format("{}: {}", run.name, run.process.last_line())}}));
      return status.has_value();
    });
    if (followers_.empty() && continued_.empty()) {
      changed_.wait(lock, [&] { return is_ending_ || !new_followers_.empty(); });
      i = -1;  // the next refresh reads all runs
    } else {
      changed_.wait_for(lock, kRefresh, [&] { return is_ending_ || !new_followers_.empty(); });
    }
  }
}

}  // namespace hearth::ui
