#include "text/teacher_file.h"

#include <algorithm>
#include <cstring>

#include "base/dtype.h"
#include "base/error.h"
#include "base/hash.h"

namespace hearth::text {
namespace {

static_assert(sizeof(TeacherHeader) == 64);

/// Number of entries of a block; the last block has fewer.
constexpr int64_t kBlockEntries = 1024;
constexpr int64_t kMaxTopK = 1 << 16;
constexpr int64_t kDigestBytes = sizeof(uint64_t);

int64_t entry_bytes(const TeacherHeader& header) {
  return static_cast<int64_t>(header.top_k) * static_cast<int64_t>(sizeof(uint32_t) + sizeof(uint16_t));
}
int64_t block_bytes(const TeacherHeader& header, int64_t num_entries) {
  return num_entries * entry_bytes(header) + kDigestBytes;
}
int64_t block_start(const TeacherHeader& header, int64_t block) {
  return static_cast<int64_t>(sizeof(TeacherHeader)) + block * block_bytes(header, kBlockEntries);
}
int64_t entries_of_block(const TeacherHeader& header, int64_t block) {
  return std::min(kBlockEntries, static_cast<int64_t>(header.num_entries) - block * kBlockEntries);
}
int64_t num_blocks(const TeacherHeader& header) {
  return (static_cast<int64_t>(header.num_entries) + kBlockEntries - 1) / kBlockEntries;
}

uint64_t digest_of(const TeacherHeader& header) {
  return hash64(std::as_bytes(std::span(&header, 1)).first(sizeof(header) - sizeof(header.digest)));
}

TeacherHeader header_of(std::span<const std::byte> bytes, const fs::path& path) {
  TeacherHeader header;
  const uint64_t magic = header.magic;
  if (bytes.size() >= sizeof(header)) std::memcpy(&header, bytes.data(), sizeof(header));
  if (bytes.size() < sizeof(header) || header.magic != magic)
    user_error("{} is not a teacher file; create one with hearth distill capture", path.string());
  const uint64_t max_entries = uint64_t{1} << 40;
  if (header.digest != digest_of(header) || header.top_k < 1 || header.top_k > kMaxTopK ||
      header.top_k > header.vocab_size || header.num_entries > max_entries)
    user_error("{}: the header is damaged; delete the file and capture it again", path.string());
  return header;
}

/// Returns the bytes of a block without its digest; empty if the block is incomplete or damaged.
std::span<const std::byte> block_of(std::span<const std::byte> bytes, const TeacherHeader& header,
                                    int64_t block) {
  const int64_t begin = block_start(header, block);
  const int64_t size = block_bytes(header, entries_of_block(header, block));
  if (std::ssize(bytes) < begin + size) return {};
  const auto whole = bytes.subspan(static_cast<size_t>(begin), static_cast<size_t>(size));
  const auto body = whole.first(whole.size() - kDigestBytes);
  uint64_t digest = 0;
  std::memcpy(&digest, whole.data() + body.size(), sizeof(digest));
  return digest == hash64(body, static_cast<uint64_t>(block)) ? body : std::span<const std::byte>();
}

/// True if the ids of each entry of a block are ascending and below the size of the vocabulary.
bool are_ascending(std::span<const std::byte> block, const TeacherHeader& header, int64_t num_entries) {
  std::vector<uint32_t> ids(static_cast<size_t>(num_entries) * header.top_k);
  std::memcpy(ids.data(), block.data(), ids.size() * sizeof(uint32_t));
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= header.vocab_size || (i % header.top_k != 0 && ids[i] <= ids[i - 1])) return false;
  }
  return true;
}

/// Returns the number of entries in the complete blocks of a file that is being captured; 0 if there is no
/// file. Removes everything after them.
int64_t keep_complete(const fs::path& path, const TeacherHeader& header) {
  if (!path_exists(path)) return 0;
  int64_t block = 0;
  {
    const MappedFile file(path);
    if (file.bytes().empty()) return 0;
    if (header_of(file.bytes(), path) != header) {
      user_error(
          "{} was captured from another teacher, other data or with another --top-k; delete it, or set --out "
          "to another file",
          path.string());
    }
    while (block < num_blocks(header) && !block_of(file.bytes(), header, block).empty()) ++block;
  }
  const int64_t num_entries = std::min(block * kBlockEntries, static_cast<int64_t>(header.num_entries));
  const int64_t end =
      block == num_blocks(header) && block > 0
          ? block_start(header, block - 1) + block_bytes(header, entries_of_block(header, block - 1))
          : block_start(header, block);
  fs::resize_file(path, static_cast<uintmax_t>(end));
  return num_entries;
}

const fs::path& with_folder(const fs::path& path) {
  if (path.has_parent_path()) make_folder(path.parent_path());
  return path;
}

}  // namespace

TeacherHeader sealed(TeacherHeader header) {
  header.digest = digest_of(header);
  return header;
}

TeacherHeader read_teacher_header(const fs::path& path) { return header_of(MappedFile(path).bytes(), path); }

TeacherFile::TeacherFile(const fs::path& path) : file_(path), header_(header_of(file_.bytes(), path)) {
  for (int64_t block = 0; block < num_blocks(header_); ++block) {
    const int64_t count = entries_of_block(header_, block);
    if (std::ssize(file_.bytes()) < block_start(header_, block) + block_bytes(header_, count)) {
      user_error(
          "{} has entries for {} of {} tokens, because its capture was interrupted; run hearth distill "
          "capture "
          "again, which continues it",
          path.string(), block * kBlockEntries, header_.num_entries);
    }
    const auto body = block_of(file_.bytes(), header_, block);
    if (body.empty() || !are_ascending(body, header_, count))
      user_error("{}: the block of tokens {} to {} is damaged; run hearth distill capture again",
                 path.string(), block * kBlockEntries, block * kBlockEntries + count - 1);
  }
}

void TeacherFile::read(int64_t entry, int32_t* ids, float* logps) const {
  HEARTH_CHECK(entry >= 0 && entry < static_cast<int64_t>(header_.num_entries));
  const int64_t block = entry / kBlockEntries, at = entry % kBlockEntries;
  const size_t k = header_.top_k;
  const std::byte* begin = file_.bytes().data() + block_start(header_, block);
  std::memcpy(ids, begin + static_cast<size_t>(at) * k * sizeof(uint32_t), k * sizeof(uint32_t));
  const std::byte* halves = begin +
                            static_cast<size_t>(entries_of_block(header_, block)) * k * sizeof(uint32_t) +
                            static_cast<size_t>(at) * k * sizeof(uint16_t);
  for (size_t j = 0; j < k; ++j)
    logps[j] = static_cast<float>(load_element(DType::f16, halves, static_cast<int64_t>(j)));
}

TeacherWriter::TeacherWriter(fs::path path, const TeacherHeader& header)
    : header_(header),
      num_entries_(keep_complete(with_folder(path), header)),
      file_(path, FileWriter::Existing::continued) {
  if (fs::file_size(path) == 0) file_.write(std::as_bytes(std::span(&header_, 1)));
}

void TeacherWriter::add(std::span<const int32_t> ids, std::span<const float> logps) {
  HEARTH_CHECK(ids.size() == header_.top_k && logps.size() == ids.size());
  HEARTH_CHECK(num_entries_ < static_cast<int64_t>(header_.num_entries));
  ids_.insert(ids_.end(), ids.begin(), ids.end());
  for (const float logp : logps) {
    logps_.emplace_back();
    store_element(DType::f16, reinterpret_cast<std::byte*>(&logps_.back()), 0, static_cast<double>(logp));
  }
  ++num_entries_;
  if (num_entries_ % kBlockEntries == 0 || num_entries_ == static_cast<int64_t>(header_.num_entries))
    write_block();
}

void TeacherWriter::write_block() {
  std::vector<std::byte> bytes;
  const auto append = [&](auto values) {
    const auto from = std::as_bytes(values);
    bytes.insert(bytes.end(), from.begin(), from.end());
  };
  append(std::span(ids_));
  append(std::span(logps_));
  const uint64_t digest = hash64(bytes, static_cast<uint64_t>((num_entries_ - 1) / kBlockEntries));
  append(std::span(&digest, 1));
  file_.write(bytes);
  ids_.clear();
  logps_.clear();
  if (num_entries_ == static_cast<int64_t>(header_.num_entries)) file_.sync_and_close();
}

}  // namespace hearth::text
