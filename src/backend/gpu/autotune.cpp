#include "backend/gpu/autotune.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "base/process.h"

namespace hearth::gpu {
namespace {

using Json = nlohmann::json;

constexpr int kFormat = 1;
constexpr int64_t kMaxFileBytes = 64 << 20;

/// Describes the first element that differs by more than the tolerance; empty if there is none.
std::string disagreement(const std::vector<float>& got, const std::vector<float>& want,
                         const Tolerance& tolerance) {
  HEARTH_CHECK(got.size() == want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    if (tolerance.allows(double{got[i]}, double{want[i]})) continue;
    return fmt::format("expected {} within {:.3g} at element {}, got {}", want[i],
                       tolerance.around(double{want[i]}), i, got[i]);
  }
  return "";
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::ranges::nth_element(values, middle);
  return *middle;
}

double seconds_of(const Candidate& candidate, Stream& stream, std::byte* workspace) {
  Event begun(Event::Kind::timed), ended(Event::Kind::timed);
  stream.record(begun);
  candidate.run(stream, workspace);
  stream.record(ended);
  stream.synchronize();
  return ended.seconds_since(begun);
}

Json read_winners(const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return Json::object();
  try {
    const auto file = parse_json<Json>(read_file(path, kMaxFileBytes));
    if (file && file->is_object() && file->value("format", 0) == kFormat && file->contains("winners") &&
        file->at("winners").is_object())
      return file->at("winners");
  } catch (const std::exception&) {
    return Json::object();  // A broken file is rewritten.
  }
  return Json::object();
}

}  // namespace

AutotuneResult autotune(std::span<const Candidate> candidates, Device& device,
                        FunctionRef<std::vector<float>(Stream&)> result, const AutotuneOptions& options) {
  HEARTH_CHECK(!candidates.empty() && options.num_runs > 0);
  const auto now = options.now ? options.now : process_seconds;
  const double end = now() + options.max_seconds;
  Stream stream(device);
  int64_t workspace_bytes = 1;
  for (const Candidate& candidate : candidates)
    workspace_bytes = std::max(workspace_bytes, candidate.workspace_bytes);
  const Memory workspace(device, workspace_bytes);
  AutotuneResult verdict;
  std::vector<float> want;
  const auto try_one = [&](const Candidate& candidate) -> std::string {
    candidate.run(stream, workspace.data());
    stream.synchronize();
    const std::vector<float> got = result(stream);
    const bool first = &candidate == candidates.data();
    if (first) want = got;
    if (std::string fault = disagreement(got, want, options.tolerance); !fault.empty()) return fault;
    std::vector<double> measured;
    do {
      measured.push_back(seconds_of(candidate, stream, workspace.data()));
    } while (std::ssize(measured) < options.num_runs && now() < end);
    const double seconds = median(std::move(measured));
    if (first || seconds < verdict.seconds) {
      verdict.name = candidate.name;
      verdict.seconds = seconds;
    }
    return "";
  };
  for (const Candidate& candidate : candidates) {
    if (&candidate != candidates.data() && now() >= end) {
      ++verdict.num_not_measured;
      continue;
    }
    std::string fault;
    try {
      fault = try_one(candidate);
    } catch (const DeviceError& error) {
      if (&candidate == candidates.data()) throw;
      fault = error.what();
    }
    if (!fault.empty()) verdict.dropped.push_back(candidate.name + ": " + fault);
  }
  return verdict;
}

WinnerFile::WinnerFile(fs::path path) : path_(std::move(path)) {}

std::optional<fs::path> WinnerFile::default_path() {
  const fs::path folder = user_cache_folder();
  if (folder.empty()) return std::nullopt;
  return folder / "matmuls.json";
}

std::optional<std::string> WinnerFile::find(const std::string& key) const {
  const Json winners = read_winners(path_);
  const auto found = winners.find(key);
  if (found == winners.end() || !found->is_object() || !found->contains("name") ||
      !found->at("name").is_string())
    return std::nullopt;
  return found->at("name").get<std::string>();
}

std::vector<std::string> WinnerFile::find_between(const std::string& prefix,
                                                  const std::string& suffix) const {
  std::vector<std::string> found;
  const Json winners = read_winners(path_);
  for (const auto& [key, winner] : winners.items()) {
    if (key.size() >= prefix.size() + suffix.size() && key.starts_with(prefix) && key.ends_with(suffix))
      found.push_back(key.substr(prefix.size(), key.size() - prefix.size() - suffix.size()));
  }
  return found;
}

void WinnerFile::keep(const std::string& key, const AutotuneResult& verdict) {
  Json winners = read_winners(path_);
  winners[key] = {{"name", verdict.name}, {"seconds", verdict.seconds}};
  try {
    make_folder(path_.parent_path());
    write_file_atomically(path_, Json{{"format", kFormat}, {"winners", winners}}.dump(1));
  } catch (const UserError&) {
    return;  // If the disk is full, only the next run pays: it measures again.
  }
}

AutotuneResult find_or_autotune(WinnerFile& file, const std::string& key,
                                FunctionRef<bool(const std::string& name)> accepts,
                                FunctionRef<AutotuneResult()> autotune) {
  if (const auto name = file.find(key); name && accepts(*name)) return {.name = *name};
  AutotuneResult verdict = autotune();
  if (verdict.num_not_measured == 0) file.keep(key, verdict);
  return verdict;
}

}  // namespace hearth::gpu
