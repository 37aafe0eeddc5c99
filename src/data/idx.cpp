#include <zlib.h>

#include <cstring>

#include "base/error.h"
#include "data/dataset.h"

namespace hearth::data {
namespace {

constexpr int64_t kMaxInflatedBytes = int64_t{4} << 30;

uint32_t big_endian(std::span<const std::byte> bytes, size_t at) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<uint32_t>(bytes[at + i]);
  return value;
}

/// A file's bytes: mapped, or inflated when it is compressed.
class IdxFile {
 public:
  explicit IdxFile(const fs::path& path) : mapped_(path) {
    std::span<const std::byte> bytes = mapped_.bytes();
    if (path.extension() == ".gz") {
      inflated_ = gunzip(bytes, kMaxInflatedBytes, path.string());
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
    const fs::path path = folder / (stem + ending);
    if (fs::exists(path)) return path;
  }
  user_error("expected the file {} or {}.gz in {}", stem, stem, folder.string());
}

class IdxDataset : public Dataset {
 public:
  IdxDataset(const fs::path& images, const fs::path& labels) : images_(images), labels_(labels) {
    const auto& axes = images_.array().axes;
    if (axes.size() != 3 || axes[1] != axes[2])
      user_error("{}: expected square images [count, side, side]", images.string());
    if (labels_.array().axes != std::vector<int64_t>{axes[0]}) {
      user_error("{}: expected {} labels, one for each image", labels.string(), axes[0]);
    }
    image_size_ = axes[1];
    channels_ = 1;
    int32_t largest = 0;
    for (const std::byte label : labels_.array().data)
      largest = std::max(largest, static_cast<int32_t>(label));
    for (int32_t i = 0; i <= std::max(largest, 9); ++i) class_names_.push_back(std::to_string(i));
  }

  int64_t size() const override { return images_.array().axes[0]; }
  void read(int64_t index, uint8_t* pixels, int32_t* label) const override {
    const auto bytes = static_cast<size_t>(image_size_ * image_size_);
    std::memcpy(pixels, images_.array().data.data() + static_cast<size_t>(index) * bytes, bytes);
    *label = static_cast<int32_t>(labels_.array().data[static_cast<size_t>(index)]);
  }

 private:
  IdxFile images_;
  IdxFile labels_;
};

}  // namespace

IdxArray parse_idx(std::span<const std::byte> bytes, std::string_view name) {
  if (bytes.size() < 4) user_error("{}: expected an IDX file, found {} bytes", name, bytes.size());
  const uint32_t magic = big_endian(bytes, 0);
  const size_t rank = magic & 0xff;
  if (magic >> 8 != 0x08 || rank == 0 || rank > 4) {
    user_error("{}: expected the IDX magic number 0x0000080N of bytes, found 0x{:08x}", name, magic);
  }
  if (bytes.size() < 4 + 4 * rank) user_error("{}: expected {} axis lengths, but the file ends", name, rank);
  IdxArray array;
  int64_t total = 1;
  for (size_t i = 0; i < rank; ++i) {
    array.axes.push_back(big_endian(bytes, 4 + 4 * i));
    if (__builtin_mul_overflow(total, array.axes.back(), &total))
      user_error("{}: expected lengths that fit memory", name);
  }
  array.data = bytes.subspan(4 + 4 * rank);
  if (std::ssize(array.data) != total) {
    user_error("{}: expected {} bytes after the header, found {}", name, total, array.data.size());
  }
  return array;
}

std::vector<std::byte> gunzip(std::span<const std::byte> bytes, int64_t limit_bytes, std::string_view name) {
  z_stream stream{};
  if (inflateInit2(&stream, 15 + 16) != Z_OK) internal_error("zlib does not start");
  std::vector<std::byte> out(std::min<size_t>(bytes.size() * 4 + 1024, static_cast<size_t>(limit_bytes)));
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  int code = Z_OK;
  while (code == Z_OK) {
    if (stream.total_out == out.size()) {
      if (std::ssize(out) >= limit_bytes) break;
      out.resize(std::min<size_t>(out.size() * 2, static_cast<size_t>(limit_bytes)));
    }
    stream.next_out = reinterpret_cast<Bytef*>(out.data() + stream.total_out);
    stream.avail_out = static_cast<uInt>(std::min<size_t>(out.size() - stream.total_out, 1U << 30));
    code = inflate(&stream, Z_NO_FLUSH);
  }
  out.resize(stream.total_out);
  inflateEnd(&stream);
  if (code != Z_STREAM_END) {
    user_error("{}: expected a whole gzip file of at most {} bytes, but it is damaged, truncated or larger",
               name, limit_bytes);
  }
  return out;
}

std::unique_ptr<Dataset> open_idx(const DatasetOptions& options) {
  const std::string prefix = options.split == "train" ? "train" : "t10k";
  return std::make_unique<IdxDataset>(find_file(options.path, prefix + "-images-idx3-ubyte"),
                                      find_file(options.path, prefix + "-labels-idx1-ubyte"));
}

}  // namespace hearth::data
