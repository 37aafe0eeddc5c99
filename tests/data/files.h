#pragma once

#include <unistd.h>
#include <zlib.h>

#include <cstdio>
#include <cstdlib>
// jpeglib.h needs stdio.h before it.
#include <jpeglib.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "data/images/image.h"
#include "temporary_folder.h"

namespace hearth::data {

namespace fs = std::filesystem;

inline void put_file(const fs::path& path, std::string_view contents) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << contents;
}

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

inline std::string big_endian(uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes.push_back(static_cast<char>(value >> shift));
  return bytes;
}

/// An IDX file of bytes with these axes.
inline std::string idx_file(const std::vector<uint32_t>& axes, std::string_view data) {
  std::string file = big_endian(0x800U + static_cast<uint32_t>(axes.size()));
  for (const uint32_t length : axes) file += big_endian(length);
  return file.append(data);
}

inline std::string gzip(std::string_view text) {
  z_stream stream{};
  deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
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

/// The text of the UserError that `call` throws, or "no error".
template <typename Call>
std::string error_of(Call&& call) {
  try {
    call();
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

/// A image whose every pixel differs from its neighbors.
inline Image speckled(int64_t height, int64_t width, int64_t channels) {
  Image image{.height = height, .width = width, .channels = channels};
  uint32_t state = 1;
  for (int64_t i = 0; i < height * width * channels; ++i)
    image.pixels.push_back(static_cast<uint8_t>((state = state * 1664525U + 1013904223U) >> 24));
  return image;
}

/// A JPEG file of the image, progressive or not.
inline std::string encode_jpeg(const Image& image, bool progressive = false) {
  jpeg_error_mgr errors;
  jpeg_compress_struct info;
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* bytes = nullptr;
  unsigned long size = 0;  // NOLINT: libjpeg's type
  jpeg_mem_dest(&info, &bytes, &size);
  info.image_width = static_cast<JDIMENSION>(image.width);
  info.image_height = static_cast<JDIMENSION>(image.height);
  info.input_components = static_cast<int>(image.channels);
  info.in_color_space = image.channels == 1 ? JCS_GRAYSCALE : image.channels == 3 ? JCS_RGB : JCS_CMYK;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, 100, TRUE);
  if (progressive) jpeg_simple_progression(&info);
  jpeg_start_compress(&info, TRUE);
  while (info.next_scanline < info.image_height) {
    auto* row = const_cast<uint8_t*>(image.pixels.data()) + info.next_scanline * image.width * image.channels;
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  std::string file(reinterpret_cast<char*>(bytes), size);
  std::free(bytes);
  return file;
}

/// The same JPEG with an EXIF orientation.
inline std::string with_orientation(const std::string& jpeg, int orientation) {
  std::string exif("\xFF\xE1\0\42Exif\0\0II*\0\10\0\0\0\1\0\22\1\3\0\1\0\0\0", 28);
  exif += static_cast<char>(orientation);
  return jpeg.substr(0, 2) + exif + std::string(7, '\0') + jpeg.substr(2);
}

}  // namespace hearth::data
