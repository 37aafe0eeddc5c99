#include "text/token_cache.h"

#include <array>
#include <bit>
#include <cstring>

#include "base/error.h"
#include "base/hash.h"

namespace hearth::text {
namespace {

static_assert(std::endian::native == std::endian::little);
static_assert(sizeof(PackedToken) == 4);
static_assert(sizeof(RecordCounts) == 16);

constexpr uint64_t kMagic = 0x3330'4E4B'5448'5248;  // "HRHTKN03"
constexpr size_t kBufferBytes = size_t{1} << 20;

struct Footer {
  uint64_t magic = kMagic;
  uint64_t key = 0;
  uint64_t num_tokens = 0;
  uint64_t num_samples = 0;
  uint64_t digest = 0;  ///< XXH3 of all bytes before the footer
};
static_assert(sizeof(Footer) == 40);

/// Returns the size of the tokens in the file in bytes, padded to a multiple of 8.
uint64_t token_bytes(uint64_t num_tokens) { return (num_tokens + num_tokens % 2) * sizeof(PackedToken); }

/// Writer of a file that also computes the hash of its bytes.
class HashingWriter {
 public:
  explicit HashingWriter(const fs::path& path) : file_(path) {}

  void write(std::span<const std::byte> bytes) {
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
    if (buffer_.size() >= kBufferBytes) flush();
  }
  uint64_t digest() {
    flush();
    return hasher_.digest();
  }
  void finish(const Footer& footer) {
    file_.write(std::as_bytes(std::span(&footer, 1)));
    file_.sync_and_close();
  }

 private:
  void flush() {
    hasher_.update(buffer_);
    file_.write(buffer_);
    buffer_.clear();
  }

  FileWriter file_;
  Hasher hasher_;
  std::vector<std::byte> buffer_;
};

class FileSink : public TokenSink {
 public:
  FileSink(const fs::path& path, uint64_t key) : writer_(path) { footer_.key = key; }

  void add(const Tokens& tokens, int64_t line, bool continues) override {
    HEARTH_CHECK(tokens.ids.size() == tokens.trained.size());
    if (!open_) {
      starts_.push_back(footer_.num_tokens);
      lines_.push_back(line);
    }
    packed_.clear();
    for (size_t i = 0; i < tokens.ids.size(); ++i) {
      HEARTH_CHECK(tokens.ids[i] >= 0);
      packed_.push_back(PackedToken::of(tokens.ids[i], tokens.trained[i] != 0));
    }
    writer_.write(std::as_bytes(std::span(packed_)));
    footer_.num_tokens += packed_.size();
    open_ = continues;
  }

  void note(const RecordCounts& notes) override { notes_ = notes; }

  void finish() {
    const PackedToken filler;
    if (footer_.num_tokens % 2 != 0) writer_.write(std::as_bytes(std::span(&filler, 1)));
    starts_.push_back(footer_.num_tokens);
    writer_.write(std::as_bytes(std::span(starts_)));
    writer_.write(std::as_bytes(std::span(lines_)));
    writer_.write(std::as_bytes(std::span(&notes_, 1)));
    footer_.num_samples = lines_.size();
    footer_.digest = writer_.digest();
    writer_.finish(footer_);
  }

 private:
  HashingWriter writer_;
  Footer footer_;
  std::vector<uint64_t> starts_;
  std::vector<int64_t> lines_;
  RecordCounts notes_;
  std::vector<PackedToken> packed_;
  bool open_ = false;
};

/// Returns the footer of a cache file if the file is complete, undamaged and has the key `key`; otherwise
/// nothing.
std::optional<Footer> checked_footer(std::span<const std::byte> bytes, uint64_t key) {
  if (bytes.size() < sizeof(Footer) || bytes.size() % 8 != 0) return std::nullopt;
  Footer footer;
  const auto body = bytes.first(bytes.size() - sizeof(Footer));
  std::memcpy(&footer, bytes.data() + body.size(), sizeof(Footer));
  if (footer.magic != kMagic || footer.key != key) return std::nullopt;
  if (footer.num_tokens > body.size() / 4 || footer.num_samples > body.size() / 16) return std::nullopt;
  const uint64_t wanted = token_bytes(footer.num_tokens) + 8 * (footer.num_samples + 1) +
                          8 * footer.num_samples + sizeof(RecordCounts);
  if (body.size() != wanted || footer.digest != hash64(body)) return std::nullopt;
  return footer;
}

bool are_starts(std::span<const uint64_t> starts, uint64_t num_tokens) {
  for (size_t i = 0; i + 1 < starts.size(); ++i) {
    if (starts[i] > starts[i + 1]) return false;
  }
  return starts.front() == 0 && starts.back() == num_tokens;
}

/// Returns a view of `count` values of type T at byte offset `byte`, which must be a multiple of their size.
template <typename T>
std::span<const T> values_at(std::span<const std::byte> bytes, uint64_t byte, uint64_t count) {
  return {reinterpret_cast<const T*>(bytes.data() + byte), count};
}

}  // namespace

uint64_t cache_key(std::span<const std::byte> data, std::span<const std::byte> tokenizer,
                   std::string_view fingerprint) {
  const std::array<uint64_t, 3> parts = {hash64(data), hash64(tokenizer), hash64(fingerprint)};
  return hash64(std::as_bytes(std::span(parts)));
}

std::optional<TokenCache> TokenCache::open(const fs::path& path, uint64_t key) {
  if (!fs::is_regular_file(path)) return std::nullopt;
  TokenCache cache;
  cache.file_ = MappedFile(path);
  const std::span<const std::byte> bytes = cache.file_.bytes();
  const auto footer = checked_footer(bytes, key);
  if (!footer) return std::nullopt;
  const uint64_t starts_at = token_bytes(footer->num_tokens);
  cache.tokens_ = values_at<PackedToken>(bytes, 0, footer->num_tokens);
  cache.starts_ = values_at<uint64_t>(bytes, starts_at, footer->num_samples + 1);
  cache.lines_ = values_at<int64_t>(bytes, starts_at + 8 * (footer->num_samples + 1), footer->num_samples);
  cache.notes_ = values_at<RecordCounts>(bytes, bytes.size() - sizeof(Footer) - sizeof(RecordCounts), 1)[0];
  if (!are_starts(cache.starts_, footer->num_tokens)) return std::nullopt;
  return cache;
}

TokenCache TokenCache::build(const fs::path& path, uint64_t key, FunctionRef<void(TokenSink&)> produce) {
  make_folder(path.parent_path());
  // Concurrent runs may build the same file: replace_file() gives each run a separate temporary file.
  replace_file(path, [&](const fs::path& temporary) {
    FileSink sink(temporary, key);
    produce(sink);
    sink.finish();
  });
  auto built = open(path, key);
  if (!built) user_error("{}: the tokens read back differ from those written; check the disk", path.string());
  return std::move(*built);
}

TokenCache TokenCache::open_or_build(const fs::path& path, uint64_t key,
                                     FunctionRef<void(TokenSink&)> produce) {
  if (auto found = open(path, key)) return std::move(*found);
  return build(path, key, produce);
}

std::span<const PackedToken> TokenCache::sample(int64_t index) const {
  HEARTH_CHECK(index >= 0 && index < num_samples());
  const uint64_t first = starts_[static_cast<size_t>(index)];
  return tokens_.subspan(first, starts_[static_cast<size_t>(index) + 1] - first);
}

std::vector<int64_t> TokenCache::lengths() const {
  std::vector<int64_t> lengths;
  for (size_t i = 0; i + 1 < starts_.size(); ++i)
    lengths.push_back(static_cast<int64_t>(starts_[i + 1] - starts_[i]));
  return lengths;
}

}  // namespace hearth::text
