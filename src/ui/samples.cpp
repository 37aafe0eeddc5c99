#include "ui/samples.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <tuple>

#include "base/error.h"

namespace hearth::ui {
namespace {

constexpr size_t kMaxSamples = 20'000;
constexpr size_t kMaxNameBytes = 64;
constexpr int64_t kMaxImageBytes = 32 << 20;
constexpr const char* kFolder = "samples";

bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= kMaxNameBytes && std::ranges::all_of(text, [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '-';
  });
}

/// Parses a file name such as step-000100-0.png.
std::optional<SampleImage> parse_name(std::string_view file) {
  constexpr std::string_view kPrefix = "step-", kSuffix = ".png";
  if (!file.starts_with(kPrefix) || !file.ends_with(kSuffix)) return std::nullopt;
  const std::string_view inner = file.substr(kPrefix.size(), file.size() - kPrefix.size() - kSuffix.size());
  SampleImage image;
  const auto [end, error] = std::from_chars(inner.data(), inner.data() + inner.size(), image.step);
  const auto digits = static_cast<size_t>(end - inner.data());
  if (error != std::errc() || image.step < 0 || digits >= inner.size() || inner[digits] != '-')
    return std::nullopt;
  image.name = inner.substr(digits + 1);
  if (!is_name(image.name)) return std::nullopt;
  return image;
}

}  // namespace

std::vector<SampleImage> list_samples(const fs::path& run) {
  std::vector<SampleImage> images;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(run / kFolder, error)) {
    if (images.size() >= kMaxSamples) break;
    if (!fs::is_regular_file(entry.symlink_status(error))) continue;
    if (auto image = parse_name(entry.path().filename().string())) images.push_back(std::move(*image));
  }
  std::ranges::sort(images, {}, [](const SampleImage& image) { return std::tie(image.name, image.step); });
  return images;
}

std::optional<std::string> read_sample(const fs::path& run, int64_t step, std::string_view name) {
  if (step < 0 || !is_name(name)) return std::nullopt;
  const fs::path file = run / kFolder / fmt::format("step-{:06}-{}.png", step, name);
  std::error_code error;
  if (!fs::is_regular_file(fs::symlink_status(file, error))) return std::nullopt;
  try {
    return read_file(file, kMaxImageBytes);
  } catch (const UserError&) {
    return std::nullopt;
  }
}

}  // namespace hearth::ui
