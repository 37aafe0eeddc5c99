#include <zlib.h>

#include <fmt/ranges.h>

#include <array>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "data/dataset.h"
#include "data/idx.h"

namespace hearth::data {
namespace {

constexpr size_t kMaxRank = 4;
constexpr size_t kMaxHeaderBytes = 4 + 4 * kMaxRank;
// Maximum compression ratio of DEFLATE (zlib's technical notes). A header that claims more decompressed bytes
// is wrong.
constexpr int64_t kMaxGzipRatio = 1032;

uint32_t big_endian(std::span<const std::byte> bytes, size_t at) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<uint32_t>(bytes[at + i]);
  return value;
}

struct IdxHeader {
  std::vector<int64_t> axes;
  int64_t header_bytes = 0;
  int64_t data_bytes = 0;
};

IdxHeader parse_header(std::span<const std::byte> bytes, std::string_view name) {
  if (bytes.size() < 4) user_error("{}: expected an IDX file, found {} bytes", name, bytes.size());
  const uint32_t magic = big_endian(bytes, 0);
  const size_t rank = magic & 0xff;
  if (magic >> 8 != 0x08 || rank == 0 || rank > kMaxRank) {
    user_error("{}: expected the IDX magic number 0x0000080N of bytes, found 0x{:08x}", name, magic);
  }
  if (bytes.size() < 4 + 4 * rank) user_error("{}: expected {} axis lengths, but the file ends", name, rank);
  IdxHeader header{.header_bytes = static_cast<int64_t>(4 + 4 * rank), .data_bytes = 1};
  for (size_t i = 0; i < rank; ++i) {
    header.axes.push_back(big_endian(bytes, 4 + 4 * i));
    if (__builtin_mul_overflow(header.data_bytes, header.axes.back(), &header.data_bytes))
      user_error("{}: expected lengths that fit memory, found {} in axis {}", name, header.axes.back(), i);
  }
  return header;
}

/// A streaming gzip decompressor.
class Inflater {
 public:
  Inflater(std::span<const std::byte> bytes, std::string_view name) : name_(name) {
    if (bytes.size() > std::numeric_limits<uInt>::max())
      user_error("{}: expected a gzip file below 4 GiB, found {} bytes", name, bytes.size());
    if (inflateInit2(&stream_, 15 + 16) != Z_OK) internal_error("zlib does not start");
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(bytes.data()));
    stream_.avail_in = static_cast<uInt>(bytes.size());
  }
  ~Inflater() { inflateEnd(&stream_); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  /// Decompresses into `out` until it is full or the stream ends; returns the number of bytes written.
  int64_t read(std::span<std::byte> out) {
    int64_t done = 0;
    while (done < std::ssize(out) && code_ == Z_OK) {
      const int64_t room = std::min<int64_t>(std::ssize(out) - done, int64_t{1} << 30);
      stream_.next_out = reinterpret_cast<Bytef*>(out.data() + done);
      stream_.avail_out = static_cast<uInt>(room);
      code_ = inflate(&stream_, Z_NO_FLUSH);
      done += room - stream_.avail_out;
    }
    if (code_ != Z_OK && code_ != Z_STREAM_END)
      user_error("{}: the gzip file is {}; download it again", name_,
                 code_ == Z_BUF_ERROR ? "truncated" : "damaged");
    return done;
  }
  /// Returns true if the stream has ended with a valid checksum and no data follows.
  bool at_end() {
    std::array<std::byte, 1> extra{};
    return read(extra) == 0 && stream_.avail_in == 0;
  }

 private:
  std::string name_;
  z_stream stream_{};
  int code_ = Z_OK;
};

/// The bytes of an IDX file: a memory-mapped view, or a decompressed copy of a .gz file.
class IdxFile {
 public:
  explicit IdxFile(const fs::path& path) : mapped_(path) {
    std::span<const std::byte> bytes = mapped_.bytes();
    if (path.extension() == ".gz") {
      inflated_ = inflate_idx(bytes, path.string());
      bytes = inflated_;
    }
    array_ = parse_idx(bytes, path.string());
  }
  const IdxArray& array() const { return array_; }

 private:
  MappedFile mapped_;
  std::vector<std::byte> inflated_;
  IdxArray array_;
};

fs::path find_file(const fs::path& folder, const std::string& stem) {
  for (const char* ending : {"", ".gz"}) {
    fs::path path = folder / (stem + ending);
    if (fs::exists(path)) return path;
  }
  user_error("expected the file {} or {}.gz in {}, found neither", stem, stem, folder.string());
}

class IdxDataset : public Dataset {
 public:
  IdxDataset(const fs::path& images, const fs::path& labels) : images_(images), labels_(labels) {
    const auto& axes = images_.array().axes;
    if (axes.size() != 3 || axes[1] != axes[2] || axes[1] == 0)
      user_error("{}: expected square images [count, side, side], found {} axes of lengths {}",
                 images.string(), axes.size(), fmt::join(axes, "x"));
    if (labels_.array().axes != std::vector<int64_t>{axes[0]})
      user_error("{}: expected {} labels, one for each image, found {}", labels.string(), axes[0],
                 fmt::join(labels_.array().axes, "x"));
    image_size_ = axes[1];
    channels_ = 1;
    int32_t largest = 0;
    for (const std::byte label : labels_.array().data)
      largest = std::max(largest, static_cast<int32_t>(label));
    for (int32_t i = 0; i <= std::max(largest, 9); ++i) class_names_.push_back(std::to_string(i));
  }

  int64_t size() const override { return images_.array().axes[0]; }
  void read(int64_t index, uint8_t* pixels, int32_t* label) const override {
    const auto bytes = static_cast<size_t>(image_size_.num_pixels());
    std::memcpy(pixels, images_.array().data.data() + static_cast<size_t>(index) * bytes, bytes);
    *label = static_cast<int32_t>(labels_.array().data[static_cast<size_t>(index)]);
  }

 private:
  IdxFile images_;
  IdxFile labels_;
};

}  // namespace

IdxArray parse_idx(std::span<const std::byte> bytes, std::string_view name) {
  IdxHeader header = parse_header(bytes, name);
  const auto data = bytes.subspan(static_cast<size_t>(header.header_bytes));
  if (std::ssize(data) != header.data_bytes)
    user_error("{}: expected {} bytes after the header, found {}", name, header.data_bytes, data.size());
  return {.axes = std::move(header.axes), .data = data};
}

std::vector<std::byte> inflate_idx(std::span<const std::byte> bytes, std::string_view name) {
  Inflater inflater(bytes, name);
  std::array<std::byte, kMaxHeaderBytes> start{};
  // The fourth byte is the rank, that is, the number of axis lengths that follow. Reads it first, then
  // exactly that many, so that pixels of a short file are not read as axis lengths.
  int64_t known = inflater.read(std::span(start).first(4));
  const size_t rank = std::min(static_cast<size_t>(start[3]), kMaxRank);
  if (known == 4) known += inflater.read(std::span(start).subspan(4, 4 * rank));
  const IdxHeader header = parse_header(std::span(start).first(static_cast<size_t>(known)), name);
  if (header.data_bytes / kMaxGzipRatio > std::ssize(bytes))
    user_error("{}: expected {} bytes after the header, more than {} compressed bytes can hold", name,
               header.data_bytes, bytes.size());
  std::vector<std::byte> out(static_cast<size_t>(header.header_bytes + header.data_bytes));
  std::memcpy(out.data(), start.data(), static_cast<size_t>(header.header_bytes));
  const int64_t found = inflater.read(std::span(out).subspan(static_cast<size_t>(header.header_bytes)));
  if (found != header.data_bytes)
    user_error("{}: expected {} bytes after the header, found {}", name, header.data_bytes, found);
  if (!inflater.at_end())
    user_error("{}: expected {} bytes after the header, found more", name, header.data_bytes);
  return out;
}

std::unique_ptr<Dataset> open_idx(const DatasetOptions& options) {
  const std::string prefix = options.split == "train" ? "train" : "t10k";
  const fs::path images = find_file(options.path, prefix + "-images-idx3-ubyte");
  return std::make_unique<IdxDataset>(images, find_file(options.path, prefix + "-labels-idx1-ubyte"));
}

}  // namespace hearth::data
