#pragma once

#include "base/path.h"

namespace hearth {

/// UserError if the path itself is a link: whoever made a run folder may have pointed it anywhere.
void refuse_link(const fs::path& path);

/// make_folder for a folder inside a run folder; UserError if it is a link.
void make_inner_folder(const fs::path& folder);

/// A file of a run folder that stays in its place while the run writes to it.
class HeldFile {
 public:
  /// UserError when it cannot be opened.
  explicit HeldFile(fs::path path);
  ~HeldFile();
  HeldFile(const HeldFile&) = delete;
  HeldFile& operator=(const HeldFile&) = delete;

  /// UserError if the path no longer leads to the file: it was deleted or replaced.
  void check() const;

 private:
  fs::path path_;
  int descriptor_;
};

}  // namespace hearth
