#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/path.h"

namespace hearth::data {

/// An image file and the number of its class.
struct LabeledFile {
  fs::path path;
  int32_t label = 0;
};

/// The labeled files of a split.
struct ClassFiles {
  std::vector<std::string> class_names;
  std::vector<LabeledFile> files;
  std::vector<std::string> faults;  ///< sentences that name the folder; the files can be read all the same
  std::vector<std::string> notes;   ///< sentences on what was chosen, and on what is not read
};

struct ClassFilesOptions {
  fs::path path;
  bool is_training = true;
  double val_share = 0.1;
  std::vector<std::string> class_names = {};  ///< by number; empty: those of the data, sorted
};

/// Lists labeled images. `path` is one of
///   a table FILE.csv or FILE.tsv with a column for the file and one for the label, or a list FILE.txt of
///     "file label" or of files in a folder per class;
///   a folder with train/CLASS/*, and test, val, valid, validation or dev like it;
///   a folder with train.csv, .tsv or .txt, and such files of one of these names; or with labels.csv or .tsv;
///   a folder with CLASS/*.
/// Where no split is held out, an image is by a hash of its name, if that is below val_share: its split does
/// not change as images are added. Of a class with two images or more, one at least is in each split.
/// UserError where nothing of this is there.
ClassFiles list_class_files(const ClassFilesOptions& options);

/// A line of a table or a list; `label` is empty where the folder of `file` is the class, `split` where no
/// column names it.
struct LabelRow {
  std::string file, label, split;
  int64_t line = 0;
};
/// True if a table has columns for the file and the label.
bool is_label_table(std::string_view text, char separator);
/// Parses a table with cells parted by `separator`; its first line may name the columns. UserError with file
/// and line. `name` stands for the file in messages.
std::vector<LabelRow> parse_label_table(std::string_view text, std::string_view name, char separator);
/// Parses lines of "file label", parted by the last blank, or of "file".
std::vector<LabelRow> parse_label_list(std::string_view text, std::string_view name);

}  // namespace hearth::data
