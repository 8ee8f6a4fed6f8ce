/** Answers to a question that is asked again and again may come out of order: a late one must not undo a newer one. */
export class Latest {
  /** Call it when asking, and what it returns when the answer is there: false if one to a later question came before it. */
  ask(): () => boolean {
    const asked = ++this._asked;
    return () => {
      if (asked < this._come) {
        return false;
      }
      this._come = asked;
      return true;
    };
  }

  private _asked = 0;
  private _come = 0;
}
