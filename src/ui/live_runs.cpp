#include "ui/live_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/run_files.h"

namespace hearth::ui {
namespace {

constexpr size_t kMaxIndexes = 24;
constexpr int64_t kMaxIndexedBytes = 32 << 20;  // per call

std::string json_text(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// Appends an array of numbers; values that are not finite become null.
template <typename Value>
void append_array(std::string& json, const std::vector<CurveBucket>& curve, Value value) {
  json += '[';
  for (const CurveBucket& bucket : curve) fmt::format_to(std::back_inserter(json), "{},", value(bucket));
  if (json.back() == ',') json.pop_back();
  json += ']';
}

/// Appends {"steps": [...], "means": [...]} and, if a bucket has several points, "mins" and "maxs".
void append_curve(std::string& json, const std::vector<CurveBucket>& curve) {
  json += "{\"steps\":";
  append_array(json, curve, [](const CurveBucket& b) { return (b.first_step + b.last_step) / 2; });
  json += ",\"means\":";
  append_array(json, curve, [](const CurveBucket& b) { return b.mean; });
  if (std::ranges::any_of(curve, [](const CurveBucket& b) { return b.num_points > 1; })) {
    json += ",\"mins\":";
    append_array(json, curve, [](const CurveBucket& b) { return b.min; });
    json += ",\"maxs\":";
    append_array(json, curve, [](const CurveBucket& b) { return b.max; });
  }
  json += '}';
}

std::string changes_json(const std::vector<std::string>& summaries, const std::vector<std::string>& removed) {
  std::string json = "{\"runs\":[";
  for (const std::string& summary : summaries) json += (json.back() == '[' ? "" : ",") + summary;
  json += "],\"removed\":[";
  for (const std::string& name : removed) json += (json.back() == '[' ? "" : ",") + json_text(name);
  return json + "]}";
}

}  // namespace

/// A run: its reader, which only the thread of refresh() uses, and its last summary.
struct LiveRuns::Entry {
  Entry(fs::path folder, std::string name) : reader(std::move(folder), std::move(name)) {}
  RunReader reader;
  RunState state = RunState::crashed;
  std::string json;  ///< empty until the first refresh
};

struct LiveRuns::OpenIndex {
  OpenIndex(std::string run, fs::path log) : name(std::move(run)), index(std::move(log)) {}
  std::string name;
  std::mutex mutex;  ///< protects `index`
  CurveIndex index;
};

LiveRuns::LiveRuns(fs::path root) : root_(std::move(root)) {}
LiveRuns::~LiveRuns() = default;

void LiveRuns::find_new_runs(std::vector<std::string>& removed) {
  std::map<std::string, fs::path> found;
  for (const fs::path& folder : find_runs(root_)) {
    const std::string name = folder.lexically_relative(root_).string();
    found.emplace(name == "." ? fs::absolute(folder).filename().string() : name, folder);
  }
  const std::lock_guard lock(mutex_);
  std::erase_if(entries_, [&](const auto& entry) {
    const bool is_gone = !found.contains(entry.first);
    if (is_gone) removed.push_back(entry.first);
    return is_gone;
  });
  for (const auto& [name, folder] : found)
    if (!entries_.contains(name)) entries_.emplace(name, std::make_unique<Entry>(folder, name));
}

std::string LiveRuns::refresh(Scope scope) {
  std::vector<std::string> summaries, removed;
  if (scope == Scope::all) find_new_runs(removed);
  // Only this thread adds and removes entries, so it may iterate without the lock.
  for (const auto& [name, entry] : entries_) {
    if (scope == Scope::running && entry->reader.summary().state != RunState::running) continue;
    entry->reader.refresh();
    std::string json = entry->reader.summary().json();
    if (json == entry->json) continue;
    summaries.push_back(json);
    const std::lock_guard lock(mutex_);
    entry->state = entry->reader.summary().state;
    entry->json = std::move(json);
  }
  return summaries.empty() && removed.empty() ? "" : changes_json(summaries, removed);
}

std::string LiveRuns::all() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> summaries;
  for (const auto& [name, entry] : entries_)
    if (!entry->json.empty()) summaries.push_back(entry->json);
  return changes_json(summaries, {});
}

std::optional<fs::path> LiveRuns::folder_of(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(name);
  if (found == entries_.end()) return std::nullopt;
  return found->second->reader.folder();
}

std::optional<RunState> LiveRuns::state_of(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(name);
  if (found == entries_.end()) return std::nullopt;
  return found->second->state;
}

std::shared_ptr<LiveRuns::OpenIndex> LiveRuns::index_of(const std::string& name) {
  const std::optional<fs::path> folder = folder_of(name);
  if (!folder) return nullptr;
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(indexes_, name, &OpenIndex::name);
  if (found == indexes_.end()) {
    indexes_.push_front(std::make_shared<OpenIndex>(name, *folder / kLogFile));
    if (indexes_.size() > kMaxIndexes) indexes_.pop_back();
  } else {
    indexes_.splice(indexes_.begin(), indexes_, found);
  }
  return indexes_.front();
}

std::optional<std::string> LiveRuns::curves(const std::string& name, StepRange range, size_t max_points) {
  const std::shared_ptr<OpenIndex> open = index_of(name);
  if (open == nullptr) return std::nullopt;
  const std::lock_guard lock(open->mutex);
  CurveIndex& index = open->index;
  const bool is_complete = !index.read_more(kMaxIndexedBytes);
  std::string json = fmt::format("{{\"run\":{},\"version\":{},\"complete\":{},\"curves\":{{", json_text(name),
                                 index.version(), is_complete);
  for (const auto& [key, curve] : index.curves(range, max_points)) {
    json += (json.back() == '{' ? "" : ",") + json_text(key) + ":";
    append_curve(json, curve);
  }
  json += "},\"events\":[";
  for (const LogEvent& event : index.events())
    json += fmt::format("{}{{\"step\":{},\"text\":{}}}", json.back() == '[' ? "" : ",", event.step,
                        json_text(event.text));
  return json + "]}";
}

}  // namespace hearth::ui
