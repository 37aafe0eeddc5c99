#include "backend/gpu/autotune.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "base/process.h"

namespace hearth::gpu {
namespace {

using Json = nlohmann::json;

constexpr int kFormat = 1;
constexpr int64_t kMostFileBytes = 64 << 20;

float largest(const std::vector<float>& values) {
  float most = 0;
  for (const float value : values) most = std::max(most, std::abs(value));
  return most;
}

/// A sentence on the first number that is too far off; empty where all agree.
std::string disagreement(const std::vector<float>& got, const std::vector<float>& want, double tolerance) {
  HEARTH_CHECK(got.size() == want.size());
  const double most = tolerance * largest(want);
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::abs(double{got[i]} - want[i]) <= most) continue;
    return fmt::format("expected {} within {:.3g} at element {}, got {}", want[i], most, i, got[i]);
  }
  return "";
}

double seconds_of(const Candidate& candidate, Stream& stream, std::byte* workspace) {
  Event begun, ended;
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
    const auto file = parse_json<Json>(read_file(path, kMostFileBytes));
    if (file && file->is_object() && file->value("format", 0) == kFormat && file->contains("winners") &&
        file->at("winners").is_object())
      return file->at("winners");
  } catch (const std::exception&) {
    return Json::object();  // It is written anew.
  }
  return Json::object();
}

}  // namespace

Verdict autotune(std::span<const Candidate> candidates, Device& device,
                 FunctionRef<std::vector<float>(Stream&)> result, double tolerance) {
  HEARTH_CHECK(!candidates.empty());
  Stream stream(device);
  int64_t workspace_bytes = 1;
  for (const Candidate& candidate : candidates)
    workspace_bytes = std::max(workspace_bytes, candidate.workspace_bytes);
  const Memory workspace(device, workspace_bytes);
  Verdict verdict;
  std::vector<float> want;
  const auto try_one = [&](const Candidate& candidate) -> std::string {
    candidate.run(stream, workspace.data());
    stream.synchronize();
    const std::vector<float> got = result(stream);
    const bool first = &candidate == candidates.data();
    if (first) want = got;
    if (std::string fault = disagreement(got, want, tolerance); !first && !fault.empty()) return fault;
    const double seconds = seconds_of(candidate, stream, workspace.data());
    if (first || seconds < verdict.seconds) {
      verdict.name = candidate.name;
      verdict.seconds = seconds;
    }
    return "";
  };
  for (const Candidate& candidate : candidates) {
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

std::optional<fs::path> WinnerFile::usual_path() {
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

void WinnerFile::keep(const std::string& key, const Verdict& verdict) {
  Json winners = read_winners(path_);
  winners[key] = {{"name", verdict.name}, {"seconds", verdict.seconds}};
  try {
    make_folder(path_.parent_path());
    write_file_atomically(path_, Json{{"format", kFormat}, {"winners", winners}}.dump(1));
  } catch (const UserError&) {
    return;  // A disk that is full costs the next run its measuring, and this one nothing.
  }
}

Verdict find_or_autotune(WinnerFile& file, const std::string& key, std::span<const Candidate> candidates,
                         FunctionRef<Verdict()> autotune) {
  if (const auto name = file.find(key)) {
    if (std::ranges::find(candidates, *name, &Candidate::name) != candidates.end()) return {.name = *name};
  }
  Verdict verdict = autotune();
  file.keep(key, verdict);
  return verdict;
}

}  // namespace hearth::gpu
