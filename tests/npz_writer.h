#pragma once

#include <zlib.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hearth {

/// The bytes of an .npy file.
inline std::string npy_file(std::string_view descr, std::string_view shape, std::string_view data,
                            char version = 1, std::string_view order = "False") {
  std::string head = "{'descr': '" + std::string(descr) + "', 'fortran_order': " + std::string(order) +
                     ", 'shape': " + std::string(shape) + ", }";
  head.resize((head.size() + 64) / 64 * 64, ' ');
  head.back() = '\n';
  std::string file = "\x93NUMPY";
  file += {version, '\0', static_cast<char>(head.size()), static_cast<char>(head.size() >> 8)};
  if (version > 1) file += {'\0', '\0'};
  return file + head + std::string(data);
}

/// The same of floats.
inline std::string npy_floats(std::string_view shape, std::span<const float> values) {
  return npy_file("<f4", shape, {reinterpret_cast<const char*>(values.data()), values.size_bytes()});
}

/// Puts files into a zip archive.
class ZipWriter {
 public:
  explicit ZipWriter(bool deflates = false) : deflates_(deflates) {}

  void add_file(const std::string& file, const std::string& data) {
    const std::string packed = deflates_ ? deflated(data) : data;
    const auto crc = crc32(0, reinterpret_cast<const Bytef*>(data.data()), static_cast<uInt>(data.size()));
    std::string common;
    put<uint16_t>(common, 20);
    put<uint16_t>(common, 0);
    put<uint16_t>(common, deflates_ ? 8 : 0);
    put<uint32_t>(common, 0);
    put<uint32_t>(common, static_cast<uint32_t>(crc));
    put<uint32_t>(common, static_cast<uint32_t>(packed.size()));
    put<uint32_t>(common, static_cast<uint32_t>(data.size()));
    put<uint16_t>(common, static_cast<uint16_t>(file.size()));
    directory_ += std::string("PK\1\2\x14\0", 6) + common + std::string(12, '\0');
    put<uint32_t>(directory_, static_cast<uint32_t>(bytes_.size()));
    directory_ += file;
    bytes_ += "PK\3\4" + common + std::string(2, '\0') + file + packed;
    ++count_;
  }
  std::string bytes() const {
    std::string all = bytes_ + directory_ + std::string("PK\5\6\0\0\0\0", 8);
    put<uint16_t>(all, count_);
    put<uint16_t>(all, count_);
    put<uint32_t>(all, static_cast<uint32_t>(directory_.size()));
    put<uint32_t>(all, static_cast<uint32_t>(bytes_.size()));
    put<uint16_t>(all, 0);
    return all;
  }
  void write(const std::filesystem::path& path) const {
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << bytes();
  }

 private:
  template <typename Number>
  static void put(std::string& out, Number value) {
    out.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  static std::string deflated(const std::string& text) {
    z_stream stream{};
    deflateInit2(&stream, 9, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
    std::string out(deflateBound(&stream, text.size()) + 64, '\0');
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
    stream.avail_in = static_cast<uInt>(text.size());
    stream.next_out = reinterpret_cast<Bytef*>(out.data());
    stream.avail_out = static_cast<uInt>(out.size());
    deflate(&stream, Z_FINISH);
    out.resize(stream.total_out);
    deflateEnd(&stream);
    return out;
  }

  bool deflates_;
  std::string bytes_, directory_;
  uint16_t count_ = 0;
};

/// Puts arrays into a zip archive, as numpy.savez does.
class NpzWriter : public ZipWriter {
 public:
  using ZipWriter::ZipWriter;
  void add(const std::string& name, const std::string& npy) { add_file(name + ".npy", npy); }
};

}  // namespace hearth
