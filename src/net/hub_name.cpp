#include "net/hub_name.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace hearth::net {
namespace {

constexpr std::string_view kPrefix = "hf:", kDatasets = "datasets/";
constexpr size_t kMaxPathBytes = 1024, kMaxNameBytes = 255;

bool is_hex(std::string_view text, size_t num_digits) {
  return text.size() == num_digits && text.find_first_not_of("0123456789abcdef") == text.npos;
}

/// True if the hub allows this name of an organization or repository.
bool is_plain(std::string_view name) {
  return !name.empty() && name.size() <= 96 && name[0] != '.' && name[0] != '-' &&
         name.find("..") == name.npos && name.find("--") == name.npos &&
         name.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") ==
             name.npos;
}

/// Removes and returns the text up to the first of `ends`, or all of it.
std::string_view take_part(std::string_view& text, std::string_view ends) {
  const size_t end = std::min(text.find_first_of(ends), text.size());
  const std::string_view part = text.substr(0, end);
  text.remove_prefix(end);
  return part;
}

/// Returns the revision with each %2F replaced by a slash.
std::string decoded_revision(std::string_view text) {
  std::string revision(text);
  for (size_t at = 0; (at = lowered(revision).find("%2f", at)) != revision.npos; ++at)
    revision.replace(at, 3, "/");
  return revision;
}

}  // namespace

std::string HubName::text() const {
  std::string text = fmt::format("{}{}{}", kPrefix, is_dataset ? kDatasets : "", repo);
  if (revision != "main") {
    text += '@';
    for (const char c : revision) text += c == '/' ? std::string("%2F") : std::string(1, c);
  }
  return path.empty() ? text : text + "/" + path;
}

bool is_hub_name(std::string_view text) { return text.starts_with(kPrefix); }

HubName parse_hub_name(std::string_view text) {
  std::string_view rest = text;
  if (rest.starts_with(kPrefix)) rest.remove_prefix(kPrefix.size());
  if (rest.starts_with("//")) rest.remove_prefix(2);
  HubName name;
  name.is_dataset = rest.starts_with(kDatasets);
  if (name.is_dataset) rest.remove_prefix(kDatasets.size());
  const std::string_view first = take_part(rest, "/@");
  name.repo = first;
  bool is_valid = is_plain(first);
  if (rest.starts_with('/')) {
    rest.remove_prefix(1);
    const std::string_view second = take_part(rest, "/@");
    name.repo = fmt::format("{}/{}", first, second);
    is_valid = is_valid && is_plain(second);
  }
  if (rest.starts_with('@')) {
    rest.remove_prefix(1);
    name.revision = decoded_revision(take_part(rest, "/"));
  }
  if (rest.starts_with('/')) rest.remove_prefix(1);
  while (rest.ends_with('/')) rest.remove_suffix(1);
  name.path = rest;
  const bool has_path = name.path.empty() || is_safe_path(name.path);
  if (!is_valid || !has_path || !is_safe_path(name.revision)) {
    user_error(
        "'{}' is not a name on the Hugging Face hub; write hf:ORG/NAME for a model, hf:ORG/NAME/FILE for a "
        "file of it, hf:datasets/ORG/NAME/FILE for data, and @REVISION after NAME for a branch, tag or "
        "commit",
        printable(text, false));
  }
  return name;
}

bool is_safe_path(std::string_view path) {
  if (path.empty() || path.size() > kMaxPathBytes) return false;
  const bool is_plain_text = std::ranges::none_of(
      path, [](char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f' || c == '\\'; });
  if (!is_plain_text) return false;
  for (std::string_view rest = path;; rest.remove_prefix(1)) {
    const std::string_view part = take_part(rest, "/");
    if (part.empty() || part == "." || part == ".." || part.size() > kMaxNameBytes) return false;
    if (rest.empty()) return true;
  }
}

bool is_git_hash(std::string_view text) { return is_hex(text, 40); }
bool is_sha256(std::string_view text) { return is_hex(text, 64); }

}  // namespace hearth::net
