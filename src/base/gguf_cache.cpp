#include "base/gguf_cache.h"

#include <fmt/format.h>

#include <array>
#include <fstream>
#include <string_view>

#include "base/error.h"
#include "base/hash.h"
#include "base/process.h"

namespace hearth {
namespace {

/// Version of the unpacked files, part of the folder's name; increase it if hub::unpack_gguf() writes other
/// contents.
constexpr int kCacheVersion = 1;

}  // namespace

bool is_gguf_file(const fs::path& path) {
  std::error_code unknown;
  if (!fs::is_regular_file(path, unknown)) return false;
  std::array<char, 4> first{};
  std::ifstream(path, std::ios::binary).read(first.data(), first.size());
  return std::string_view(first.data(), first.size()) == kGgufMagic;
}

fs::path config_folder(const fs::path& model) {
  if (!is_gguf_file(model)) return model;
  const fs::path cache = user_cache_folder();
  if (cache.empty())
    user_error(
        "{}: there is no cache folder for the config and tokenizer of the GGUF file; set HOME or "
        "XDG_CACHE_HOME",
        model.string());
  const std::string key = fmt::format("{}\n{}\n{}\n{}", fs::canonical(model).string(), fs::file_size(model),
                                      fs::last_write_time(model).time_since_epoch().count(), kCacheVersion);
  return cache / "gguf" / fmt::format("{}-{}", model.stem().string(), hex64(hash64(key)));
}

}  // namespace hearth
