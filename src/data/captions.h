#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/extent.h"
#include "base/path.h"
#include "data/image.h"
#include "data/read_check.h"

namespace hearth::data {

/// A picture to train on, and what it shows.
struct CaptionedPicture {
  /// Origin of the caption: a table or text file, the folder's name, or none (the trigger alone).
  enum class Source : uint8_t { own, folder, none };
  fs::path file;
  std::string caption;
  Source source = Source::own;
  Extent size;              ///< in pixels, by `exif`; 0x0 for keep_damaged without a size
  Exif exif = Exif::apply;  ///< ignore only for an image that is not stored upright
  int64_t repeats = 1;      ///< how often an epoch has it
};

/// The images of a folder and of the folders in it, by path, hidden ones left out; no picture
/// is decoded. A caption is the text that a metadata.jsonl or metadata.csv beside or above the picture has
/// for it; otherwise the file of its name that ends in .txt, or if there is none in .caption, its lines
/// joined. `trigger` comes before captions that do not have it; where none of the pictures has a caption, it
/// is that of all. In a folder called NUM_NAME (up to three digits) pictures come NUM times and NAME stands
/// in for captions that are missing, as in kohya's sd-scripts. Images of regularization_folder(folder) are
/// left out. UserError where there is no picture, one without caption, one in a format that is not read, or
/// a line of metadata.jsonl of a picture that is not there, or unless `allow_outside` is a link out of the
/// folder.
std::vector<CaptionedPicture> read_captions(const fs::path& folder, std::string_view trigger = "",
                                            Exif exif = Exif::apply, bool allow_outside = false,
                                            bool keep_damaged = false);
/// Decodes every image on `num_threads` threads.
ReadCheck check_captioned(const std::vector<CaptionedPicture>& pictures, int num_threads);
/// Leaves out images that cannot be decoded; returns a sentence about them (describe_skipped).
std::string leave_out_bad(std::vector<CaptionedPicture>& pictures, int num_threads);

/// "20 captions of their own, 4 from the folder's name, 1 without": counts of Source.
std::string describe_captions(const std::vector<CaptionedPicture>& pictures);

/// The folder "reg" of kohya's layout in a folder, with folders NUM_NAME of images of the class (prior
/// preservation); empty if there is none.
fs::path regularization_folder(const fs::path& folder);

/// True if an image in a folder, or in those below it, has a caption in a file.
bool has_captions(const fs::path& folder);

/// A line of metadata.jsonl: {"file_name": "a.png", "text": "a red house"}. The text may be under "prompt"
/// instead.
struct CaptionLine {
  int64_t line = 0;  ///< from 1
  std::string file_name;
  std::string text;
};
/// All of them. UserError with `name` and line for one without either of both, or one that is no JSON.
std::vector<CaptionLine> parse_caption_lines(std::string_view text, std::string_view name);
/// The records of a metadata.csv (RFC 4180), whose first one names the columns file_name and text, or prompt.
/// UserError with `name` and line.
std::vector<CaptionLine> parse_caption_csv(std::string_view text, std::string_view name);
/// The caption in a text file: its lines without blank ends, joined by spaces. UserError where it is not
/// UTF-8.
std::string parse_caption(std::string_view text, std::string_view name);

}  // namespace hearth::data
