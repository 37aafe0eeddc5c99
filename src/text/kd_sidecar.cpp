#include "text/kd_sidecar.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "base/dtype.h"
#include "base/error.h"

namespace hearth::text {
namespace {

constexpr std::string_view kMagic = "KD.LOGP\n", kShardMagic = "BIN.TOK\n";
constexpr size_t kHeaderBytes = 1024, kHashOffset = 64, kHashBytes = 16;
constexpr int32_t kMaxK = 1024;
/// Name of the file next to a shard with the hash of the settings that it was tokenized with.
constexpr const char* kHashFile = ".tokenize_hash";
/// Max value of a log-probability, which f16 and the teacher's bf16 may round above 0.
constexpr float kMaxLogp = 0.01F;

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
/// Returns the i32 with this index in a header.
int32_t field(std::span<const std::byte> bytes, size_t index) {
  int32_t value = 0;
  std::memcpy(&value, bytes.data() + index * sizeof(value), sizeof(value));
  return value;
}

[[noreturn]] void refuse(const fs::path& path, std::string_view fault) {
  user_error("{}: {}; capture it again with surogate distill-capture", path.string(), fault);
}

TeacherHeader header_of(std::span<const std::byte> bytes, const fs::path& path) {
  if (bytes.size() < kHeaderBytes || !text_of(bytes).starts_with(kMagic))
    refuse(path, "this is not a sidecar of a token shard");
  const int32_t version = field(bytes, 2), k = field(bytes, 3), tokens = field(bytes, 4);
  const int32_t vocab_size = field(bytes, 5), dtype = field(bytes, 6);
  if (version != 1 || dtype != 0)
    user_error("{}: version {} with log-probabilities of type {} is not supported, only version 1 in f16",
               path.string(), version, dtype);
  if (k < 1 || k > kMaxK || tokens < 1 || vocab_size < k) refuse(path, "the header is damaged");
  const auto wanted = kHeaderBytes + static_cast<uint64_t>(tokens) * static_cast<uint64_t>(k) * 6;
  if (bytes.size() != wanted)
    refuse(path, fmt::format("the file has {} bytes, but its header requires {}", bytes.size(), wanted));
  return {.top_k = static_cast<uint32_t>(k),
          .vocab_size = static_cast<uint32_t>(vocab_size),
          .num_entries = static_cast<uint64_t>(tokens)};
}

/// Throws a UserError if the shard has another number of tokens than its sidecar, or was tokenized again.
void check_shard(std::span<const std::byte> shard, const fs::path& shard_path,
                 std::span<const std::byte> sidecar, const fs::path& path) {
  if (shard.size() < kHeaderBytes || !text_of(shard).starts_with(kShardMagic) || field(shard, 3) != 4)
    user_error("{}: this is not a token shard of Surogate with 4 bytes per token", shard_path.string());
  const int32_t tokens = field(sidecar, 4);
  if (field(shard, 4) != tokens || shard.size() < kHeaderBytes + 4 * static_cast<uint64_t>(tokens))
    refuse(path, fmt::format("the sidecar has {} tokens, but its shard has {}", tokens, field(shard, 4)));
  const fs::path hash_file = path.parent_path() / kHashFile;
  std::string_view hash = text_of(sidecar).substr(kHashOffset, kHashBytes);
  hash = hash.substr(0, hash.find('\0'));
  if (!path_exists(hash_file) || hash.empty()) return;
  std::string found = read_file(hash_file);
  found.resize(std::min(found.find_last_not_of(" \n") + 1, found.size()));
  if (found != hash)
    refuse(path, fmt::format("the sidecar belongs to the tokenize hash '{}', but {} has '{}'", hash,
                             hash_file.string(), found));
}

}  // namespace

bool is_kd_sidecar(const fs::path& path) {
  if (!fs::is_regular_file(path) || fs::file_size(path) < kMagic.size()) return false;
  return text_of(MappedFile(path).bytes()).starts_with(kMagic);
}

TeacherHeader read_kd_header(const fs::path& path) { return header_of(MappedFile(path).bytes(), path); }

fs::path shard_of_sidecar(const fs::path& path) {
  fs::path shard = path;
  return shard.replace_extension();
}

KdSidecar::KdSidecar(const fs::path& path, const fs::path& shard, int64_t vocab_size)
    : file_(path), shard_(shard) {
  const TeacherHeader header = header_of(file_.bytes(), path);
  check_shard(shard_.bytes(), shard, file_.bytes(), path);
  num_tokens_ = num_entries_ = static_cast<int64_t>(header.num_entries);
  k_ = header.top_k;
  check_entries(path, vocab_size);
}

void KdSidecar::check_entries(const fs::path& path, int64_t vocab_size) {
  std::vector<int32_t> ids(k_);
  std::vector<float> logps(k_);
  const auto is_empty = [&] {
    return std::ranges::all_of(ids, [](int32_t id) { return id == 0; }) &&
           std::ranges::all_of(logps, [](float logp) { return logp == 0; });
  };
  for (; num_entries_ > 0; --num_entries_) {
    read(num_entries_ - 1, ids.data(), logps.data());
    if (!is_empty()) break;
  }
  for (int64_t entry = 0; entry < num_entries_; ++entry) {
    read(entry, ids.data(), logps.data());
    const bool repeats = std::ranges::adjacent_find(ids) != ids.end();
    const bool is_valid =
        std::ranges::all_of(logps, [](float logp) { return logp <= kMaxLogp && std::isfinite(logp); });
    if (repeats || !is_valid || ids.front() < 0)
      refuse(path, fmt::format("the entry of token {} is damaged", entry));
    if (ids.back() >= vocab_size)
      user_error(
          "{}: the teacher lists token {}, but the student's tokenizer has {} tokens; use a teacher with the "
          "same tokenizer",
          path.string(), ids.back(), vocab_size);
  }
}

void KdSidecar::read(int64_t entry, int32_t* ids, float* logps) const {
  HEARTH_CHECK(entry >= 0 && entry < num_tokens_);
  const std::byte* rows = file_.bytes().data() + kHeaderBytes;
  const std::byte* from = rows + static_cast<size_t>(entry) * k_ * sizeof(int32_t);
  const std::byte* halves = rows + static_cast<size_t>(num_tokens_) * k_ * sizeof(int32_t) +
                            static_cast<size_t>(entry) * k_ * sizeof(uint16_t);
  std::array<std::pair<int32_t, float>, kMaxK> listed;
  for (size_t j = 0; j < k_; ++j) {
    std::memcpy(&listed[j].first, from + j * sizeof(int32_t), sizeof(int32_t));
    listed[j].second = static_cast<float>(load_element(DType::f16, halves, static_cast<int64_t>(j)));
  }
  std::sort(listed.begin(), listed.begin() + static_cast<ptrdiff_t>(k_));
  for (size_t j = 0; j < k_; ++j) {
    ids[j] = listed[j].first;
    const float logp = listed[j].second;
    logps[j] = logp <= kMaxLogp ? std::min(logp, 0.0F) : logp;
  }
}

bool KdSidecar::has_token(int64_t position, int32_t id) const {
  int32_t found = 0;
  std::memcpy(&found, shard_.bytes().data() + kHeaderBytes + 4 * static_cast<size_t>(position),
              sizeof(found));
  return found == id;
}

}  // namespace hearth::text
