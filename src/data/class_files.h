#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/path.h"

namespace hearth::data {

/// An image file and its class index.
struct LabeledFile {
  fs::path path;
  int32_t label = 0;
};

/// The labeled files of a split.
struct ClassFiles {
  std::vector<std::string> class_names;
  std::vector<LabeledFile> files;
  std::vector<std::string> faults;  ///< errors in the data, with folder or line; `files` has the valid images
  /// Sentences about how the split was chosen and about files that are not read.
  std::vector<std::string> notes;
};

/// Options of list_class_files().
struct ClassFilesOptions {
  fs::path path;
  bool is_training = true;
  double val_share = 0.1;
  std::vector<std::string> class_names = {};  ///< class names by index; empty: the names in the data, sorted
};

/// Lists labeled images. `path` is one of
///   a table FILE.csv or FILE.tsv with a column for the file and one for the label, or a list FILE.txt of
///     "file label" or of files in a folder per class;
///   a folder with train/CLASS/*, and optionally val/CLASS/* (other names of val: data/split_names.h);
///   a folder with train.csv, .tsv or .txt, and such files of one of these names; or with labels.csv or .tsv;
///   a folder with CLASS/*.
/// If the data has no held-out split, an image is held out if a hash of its name, in [0, 1), is below
/// val_share, so that its split does not change when images are added. A class of two or more images has at
/// least one in each split. Throws a UserError if the path has none of these layouts.
ClassFiles list_class_files(const ClassFilesOptions& options);

/// A line of a table or a list. `label` is empty if the folder of `file` names the class; `split` is empty if
/// the table has no column for it.
struct LabelRow {
  std::string file, label, split;
  int64_t line = 0;
};
/// True if a table has columns for the file and the label.
bool is_label_table(std::string_view text, char separator);
/// Parses a table whose cells are separated by `separator`; the first line may name the columns. Throws a
/// UserError with `name`, the file name for messages, and line.
std::vector<LabelRow> parse_label_table(std::string_view text, std::string_view name, char separator);
/// Parses lines of "file label", separated by the last blank, or of "file".
std::vector<LabelRow> parse_label_list(std::string_view text, std::string_view name);

}  // namespace hearth::data
