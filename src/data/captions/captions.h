#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/extent.h"
#include "base/path.h"
#include "data/images/image.h"
#include "data/read_check.h"

namespace hearth::data {

/// An image-caption pair for training.
struct CaptionedImage {
  /// Origin of the caption: a table or text file, the folder's name, or none (the trigger alone).
  enum class Source : uint8_t { own, folder, none };
  fs::path file;
  std::string caption;
  Source source = Source::own;
  Extent size;              ///< in pixels, after `exif`; 0x0 if the file is damaged (option keep_damaged)
  Exif exif = Exif::apply;  ///< Exif::ignore only if the stored image is not upright and shall not be rotated
  int64_t repeats = 1;      ///< number of times that the image occurs in an epoch
};

/// Lists the images of a folder and its subfolders by path, without hidden files and without
/// regularization_folder(folder); decodes no pixels. The caption of an image is its text in a metadata.jsonl
/// or metadata.csv in its folder or a parent folder; otherwise the text of the file with its name and the
/// extension .txt or, if there is none, .caption. `trigger` is put before captions that do not contain it; if
/// no image has a caption, it is the caption of all. In a folder NUM_NAME (up to three digits) each image is
/// repeated NUM times, and NAME replaces missing captions, as in kohya's sd-scripts. Throws a UserError if
/// there is no image, an image has no caption or an unsupported format, metadata names a missing image, or an
/// image is a link out of the folder and `allow_outside` is false.
std::vector<CaptionedImage> read_captions(const fs::path& folder, std::string_view trigger = "",
                                          Exif exif = Exif::apply, bool allow_outside = false,
                                          bool keep_damaged = false);
/// Decodes every image on `num_threads` threads, and returns which ones can be read.
ReadCheck check_captioned(const std::vector<CaptionedImage>& images, int num_threads);
/// Removes images that cannot be decoded; returns a sentence for the user about them (describe_skipped()).
std::string remove_unreadable(std::vector<CaptionedImage>& images, int num_threads);

/// Describes the number of images by Source: "20 captions from files, 4 from the folder's name, 1 without".
std::string describe_captions(const std::vector<CaptionedImage>& images);

/// Returns the subfolder "reg" of kohya's folder layout, which contains folders NUM_NAME with regularization
/// images (prior preservation); empty if there is none.
fs::path regularization_folder(const fs::path& folder);

/// True if an image in a folder or its subfolders has a caption in a file.
bool has_captions(const fs::path& folder);

/// A line of metadata.jsonl: {"file_name": "a.png", "text": "a red house"}. The text may be under "prompt"
/// instead.
struct CaptionLine {
  int64_t line = 0;  ///< from 1
  std::string file_name;
  std::string text;
};
/// Parses a metadata.jsonl. Throws a UserError with `name` and line if a line is not JSON or lacks the file
/// name or text.
std::vector<CaptionLine> parse_caption_lines(std::string_view text, std::string_view name);
/// Parses a metadata.csv (RFC 4180), whose header names the columns file_name and text or prompt. Throws a
/// UserError with `name` and line.
std::vector<CaptionLine> parse_caption_csv(std::string_view text, std::string_view name);
/// Returns the caption in a text file: its lines, without leading and trailing whitespace, joined by spaces.
/// Throws a UserError if it is not UTF-8.
std::string parse_caption(std::string_view text, std::string_view name);

}  // namespace hearth::data
